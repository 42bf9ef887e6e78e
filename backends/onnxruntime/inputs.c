/* Inputs: zero copy for one request whose bytes lie together, one gather otherwise, element by
 * element for strings (strings.c). It trusts the server's checks of sizes and shapes. */
#include "onnxruntime/inputs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime/datatype.h"
#include "onnxruntime/strings.h"

enum { MAX_RANK = 64, ALIGNMENT = 64, KEEP_BYTES = 16 << 20 };

static const char doing[] = "an input could not be handed to ONNX Runtime";

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
    return gather->n_bytes >= n_bytes;
}

static int lies_together(const sluice_input *input, size_t n_requests) {
    return n_requests == 1 && input->n_pieces <= 1;
}

/* Sums of sizes of memory that exists: they can't wrap. */
static size_t bytes_of(const sluice_request *const *requests, size_t n_requests, size_t index) {
    size_t sum = 0;
    for (size_t i = 0; i < n_requests; i++) {
        sum += requests[i]->inputs[index].n_bytes;
    }
    return sum;
}

static size_t gather_bytes(const sluice_request *const *requests, size_t n_requests) {
    size_t sum = 0;
    for (size_t i = 0; i < requests[0]->n_inputs; i++) {
        const sluice_input *input = &requests[0]->inputs[i];
        if (input->datatype != SLUICE_BYTES && !lies_together(input, n_requests)) {
            sum += aligned(bytes_of(requests, n_requests, i));
        }
    }
    return sum;
}

static void copy_together(const sluice_request *const *requests, size_t n_requests, size_t index,
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

/* The dimensions of the whole batch: those of the input itself where there is one request. */
static const int64_t *dims_of(const sluice_request *const *requests, size_t n_requests,
                              size_t index, int64_t dims[MAX_RANK]) {
    const sluice_input *input = &requests[0]->inputs[index];
    if (n_requests == 1 || input->rank == 0) {
        return input->dims;
    }
    memcpy(dims, input->dims, input->rank * sizeof(*dims));
    for (size_t i = 1; i < n_requests; i++) {
        dims[0] += requests[i]->inputs[index].dims[0];
    }
    return dims;
}

/* A value over bytes that stay where they are. ONNX Runtime does not write to its inputs, though
 * its function takes a pointer that could be written through; of an empty tensor it only wants some
 * address. */
static OrtStatus *view_make(const struct ort *ort, const sluice_input *input, const void *data,
                            size_t n_bytes, const int64_t *dims, OrtValue **value) {
    static const char nothing = 0;
    return ort->api->CreateTensorWithDataAsOrtValue(
        ort->cpu, (void *)(uintptr_t)(n_bytes ? data : &nothing), n_bytes, dims, input->rank,
        datatype_of_ours(input->datatype)->theirs, value);
}

/* `used`: bytes of `gather` that are taken. */
static OrtStatus *value_make(const struct ort *ort, struct gather *gather, size_t *used,
                             const sluice_request *const *requests, size_t n_requests, size_t index,
                             OrtValue **value) {
    const sluice_input *input = &requests[0]->inputs[index];
    int64_t room[MAX_RANK];
    const int64_t *dims = dims_of(requests, n_requests, index, room);
    if (input->datatype == SLUICE_BYTES) {
        return strings_make(ort, requests, n_requests, index, dims, value);
    }
    size_t n_bytes = bytes_of(requests, n_requests, index);
    if (n_bytes == 0 || lies_together(input, n_requests)) {
        return view_make(ort, input, n_bytes ? input->pieces[0].data : NULL, n_bytes, dims, value);
    }
    unsigned char *to = gather->bytes + *used;
    copy_together(requests, n_requests, index, to);
    *used += aligned(n_bytes);
    return view_make(ort, input, to, n_bytes, dims, value);
}

sluice_status inputs_make(const struct ort *ort, struct gather *gather,
                          const sluice_request *const *requests, size_t n_requests,
                          const char **names, OrtValue **values, size_t *n, sluice_error *error) {
    size_t used = 0;
    *n = 0;
    if (!gather_reserve(gather, gather_bytes(requests, n_requests))) {
        return error_set(error, SLUICE_NO_MEMORY, "no memory to put the inputs together");
    }
    for (size_t i = 0; i < requests[0]->n_inputs; i++) {
        names[i] = requests[0]->inputs[i].name;
        OrtStatus *result = value_make(ort, gather, &used, requests, n_requests, i, &values[i]);
        if (result) {
            inputs_release(ort, values, i);
            return ort_check(ort, result, doing, error);
        }
        *n = i + 1;
    }
    return SLUICE_OK;
}

void inputs_release(const struct ort *ort, OrtValue **values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ort->api->ReleaseValue(values[i]);
    }
}
