/* The server's side of the backend interface: receives answers, checks that they keep the
 * interface's rules, and holds their outputs until the test releases them. */
#ifndef SLUICE_TEST_HOST_H
#define SLUICE_TEST_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "sluice/backend.h"

struct test_request;

/* One per process, as in a server. */
const sluice_host *host_get(void);

/* Loads DIRECTORY/libsluice_NAME.so for the life of the process. Returns: its entry; fails the test
 * when there is none. */
typedef const sluice_backend *(*host_entry)(const sluice_host *host);
host_entry host_load(const char *directory, const char *name);

/* Lines logged at `level` since host_log_clear. */
size_t host_log_count(sluice_log_level level);
/* Returns: whether one of the lines contains `part`. */
bool host_log_has(const char *part);
void host_log_clear(void);

/* Returns: the runs that backends reported so far, of tests that execute on their own thread. */
size_t host_computed_count(void);

#endif
