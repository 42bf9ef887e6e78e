/* The number of files and sockets that this process may have open. */
#ifndef SLUICE_CORE_OS_FD_LIMIT_H
#define SLUICE_CORE_OS_FD_LIMIT_H

#include <stdint.h>

/* Raises the soft limit to the hard one. Returns: the limit now. Thread: before others start. */
uint64_t fd_limit_raise(void);
/* Returns: the limit; 0: unknown. Thread: any. */
uint64_t fd_limit(void);
/* Returns: how many descriptors are open. Thread: any. */
uint64_t fd_count_open(void);
/* Returns: how many more descriptors the limit allows. */
uint64_t fd_limit_left(void);

#endif
