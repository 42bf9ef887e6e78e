/* Zero copy for a single request whose bytes are contiguous, one copy otherwise. Sizes and shapes
 * were checked by the server. */
#include "common/gather.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, KEEP_BYTES = 16 << 20 };

void gather_fini(struct gather *gather) {
    free(gather->bytes);
    *gather = (struct gather){0};
}

void gather_trim(struct gather *gather) {
    if (gather->n_bytes > KEEP_BYTES) {
        gather_fini(gather);
    }
}

static size_t aligned(size_t n_bytes) {
    return (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int gather_reserve(struct gather *gather, size_t n_bytes) {
    if (gather->n_bytes < n_bytes) {
        size_t roomy = aligned(n_bytes + n_bytes / 4);
        gather_fini(gather);
        gather->bytes = aligned_alloc(ALIGNMENT, roomy);
        gather->n_bytes = gather->bytes ? roomy : 0;
    }
    gather->n_used = 0;
    return gather->n_bytes >= n_bytes;
}

static int is_contiguous(const sluice_input *input, size_t n_requests) {
    return n_requests == 1 && input->n_pieces <= 1;
}

/* Sums sizes of existing memory, so they cannot overflow. */
static size_t input_bytes(const sluice_request *const *requests, size_t n_requests, size_t index) {
    size_t sum = 0;
    for (size_t i = 0; i < n_requests; i++) {
        sum += requests[i]->inputs[index].n_bytes;
    }
    return sum;
}

int gather_begin(struct gather *gather, const sluice_request *const *requests, size_t n_requests) {
    size_t sum = 0;
    for (size_t i = 0; i < requests[0]->n_inputs; i++) {
        const sluice_input *input = &requests[0]->inputs[i];
        if (input->datatype != SLUICE_BYTES && !is_contiguous(input, n_requests)) {
            sum += aligned(input_bytes(requests, n_requests, i));
        }
    }
    return gather_reserve(gather, sum);
}

static void copy_pieces(const sluice_request *const *requests, size_t n_requests, size_t index,
                        unsigned char *to) {
    for (size_t i = 0; i < n_requests; i++) {
        const sluice_input *input = &requests[i]->inputs[index];
        for (size_t k = 0; k < input->n_pieces; k++) {
            if (input->pieces[k].n_bytes > 0) {
                memcpy(to, input->pieces[k].data, input->pieces[k].n_bytes);
                to += input->pieces[k].n_bytes;
            }
        }
    }
}

const void *gather_input(struct gather *gather, const sluice_request *const *requests,
                         size_t n_requests, size_t index, size_t *n_bytes) {
    static const uint64_t nothing = 0;
    const sluice_input *input = &requests[0]->inputs[index];
    *n_bytes = input_bytes(requests, n_requests, index);
    if (*n_bytes == 0) { /* libraries require an address */
        return &nothing;
    }
    if (is_contiguous(input, n_requests)) {
        return input->pieces[0].data;
    }
    unsigned char *to = gather->bytes + gather->n_used;
    copy_pieces(requests, n_requests, index, to);
    gather->n_used += aligned(*n_bytes);
    return to;
}

int gather_holds(const struct gather *gather, const void *at) {
    uintptr_t from = (uintptr_t)gather->bytes, address = (uintptr_t)at;
    return address >= from && address < from + gather->n_bytes;
}

const int64_t *gather_dims(const sluice_request *const *requests, size_t n_requests, size_t index,
                           int64_t dims[GATHER_MAX_RANK]) {
    const sluice_input *input = &requests[0]->inputs[index];
    if (n_requests == 1) {
        return input->dims;
    }
    memcpy(dims, input->dims, input->rank * sizeof(*dims));
    for (size_t i = 1; i < n_requests; i++) {
        dims[0] += requests[i]->inputs[index].dims[0];
    }
    return dims;
}
