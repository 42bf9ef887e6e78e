/* How long to wait before something that failed is tried again: the wait doubles with each failure
 * in a row. The caller adds a random share (prng_share), so that many do not retry together. */
#ifndef SLUICE_CORE_BASE_BACKOFF_H
#define SLUICE_CORE_BASE_BACKOFF_H

#include <stdint.h>

/* `n_failures`: in a row, with the latest one; 0 counts as 1. Returns: `first` after the first,
 * twice that after the second and so on, at most `longest`; in their unit. Thread: any. */
static inline uint64_t backoff_wait(uint64_t first, uint64_t longest, unsigned n_failures) {
    unsigned n_doublings = n_failures > 0 ? n_failures - 1 : 0;
    if (n_doublings >= 64 || first > longest >> n_doublings) {
        return longest;
    }
    return first << n_doublings;
}

#endif
