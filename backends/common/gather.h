/* The inputs of a batch, each as one contiguous piece: the request's own bytes, or a copy in memory
 * that is reused between batches. */
#ifndef SLUICE_COMMON_GATHER_H
#define SLUICE_COMMON_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

enum { GATHER_MAX_RANK = 64 };

/* Initialized with {0}. */
struct gather {
    unsigned char *bytes;
    size_t n_bytes;
    size_t n_used; /* bytes used by the gathered inputs */
};

void gather_fini(struct gather *gather);
/* Frees memory that an unusually large batch needed. */
void gather_trim(struct gather *gather);

/* Reserves memory for every non-BYTES input of the batch that is not contiguous. The requests have
 * the same inputs. Returns: 0 when out of memory. */
int gather_begin(struct gather *gather, const sluice_request *const *requests, size_t n_requests);
/* Input `index` of all requests in order, *n_bytes long. Returns: an address that is never NULL:
 * the request's own memory, or the gather's, valid until the next gather_begin. */
const void *gather_input(struct gather *gather, const sluice_request *const *requests,
                         size_t n_requests, size_t index, size_t *n_bytes);
/* Returns: whether the address is in memory that the next batch overwrites. */
int gather_holds(const struct gather *gather, const void *at);

/* Returns: the dimensions of input `index` for the whole batch, possibly stored in `dims`. Shapes
 * differ in the first dimension only. */
const int64_t *gather_dims(const sluice_request *const *requests, size_t n_requests, size_t index,
                           int64_t dims[GATHER_MAX_RANK]);

#endif
