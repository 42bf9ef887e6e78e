/* The inputs of a batch, each as one piece: where it lies, if it is one already, or put together in
 * memory that is kept from batch to batch. */
#ifndef SLUICE_COMMON_GATHER_H
#define SLUICE_COMMON_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

enum { GATHER_MAX_RANK = 64 };

/* {0} to begin with. */
struct gather {
    unsigned char *bytes;
    size_t n_bytes;
    size_t n_used; /* of them, by the inputs that were put together */
};

void gather_fini(struct gather *gather);
/* Gives back what an unusually large batch took. */
void gather_trim(struct gather *gather);

/* Makes room for every input of the batch that is not BYTES and does not lie in one piece; nothing
 * is used of it yet. The requests have the same inputs. Returns: 0 when there is no memory. */
int gather_begin(struct gather *gather, const sluice_request *const *requests, size_t n_requests);
/* Input `index` of all requests, in order: its address, *n_bytes long. The address is never NULL;
 * what it points to is the request's own, or the gather's until the next gather_begin. */
const void *gather_input(struct gather *gather, const sluice_request *const *requests,
                         size_t n_requests, size_t index, size_t *n_bytes);
/* Does the address lie in memory that the next batch overwrites? */
int gather_holds(const struct gather *gather, const void *at);

/* The dimensions of input `index` for the whole batch; `dims` is room that may be used for them.
 * Shapes differ in the first dimension only. */
const int64_t *gather_dims(const sluice_request *const *requests, size_t n_requests, size_t index,
                           int64_t dims[GATHER_MAX_RANK]);

#endif
