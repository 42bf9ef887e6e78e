/* Bytes that nobody can guess, from the system: keys, and seeds that are not to be foreseen. */
#ifndef SLUICE_CORE_BASE_RANDOM_H
#define SLUICE_CORE_BASE_RANDOM_H

#include <stddef.h>

/* At most 256 of them, which come at once. Thread: any. */
void random_fill(void *out, size_t n_bytes);

#endif
