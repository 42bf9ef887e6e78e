/* Strings with lengths, in both directions. ONNX Runtime's functions for NUL-terminated strings are
 * not used. */
#include "onnxruntime/strings.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 4 };

/* The read position in the pieces of an input, which may be split anywhere. */
struct cursor {
    const sluice_piece *piece;
    size_t n_pieces; /* from `piece` on */
    size_t offset;   /* in `piece` */
};

/* Returns: 0 when fewer than `n_bytes` are left. */
static int cursor_read(struct cursor *cursor, void *to, size_t n_bytes) {
    unsigned char *out = to;
    while (n_bytes > 0 && cursor->n_pieces > 0) {
        size_t left = cursor->piece->n_bytes - cursor->offset;
        size_t n = left < n_bytes ? left : n_bytes;
        if (n > 0) { /* an empty piece may have no address */
            memcpy(out, (const unsigned char *)cursor->piece->data + cursor->offset, n);
            out += n;
            n_bytes -= n;
            cursor->offset += n;
        }
        if (cursor->offset == cursor->piece->n_bytes) {
            cursor->piece++;
            cursor->n_pieces--;
            cursor->offset = 0;
        }
    }
    return n_bytes == 0;
}

/* Copies the elements of one input to the tensor's elements from *at on. The server checked the
 * lengths; a mismatch must still not crash. */
static OrtStatus *elements_fill(const struct ort *ort, const sluice_input *input, OrtValue *value,
                                size_t *at) {
    struct cursor cursor = {input->pieces, input->n_pieces, 0};
    size_t left = input->n_bytes;
    while (left > 0) {
        uint32_t length = 0;
        char *element = NULL;
        if (left < LENGTH_BYTES || !cursor_read(&cursor, &length, LENGTH_BYTES) ||
            length > left - LENGTH_BYTES) {
            return ort->api->CreateStatus(ORT_INVALID_ARGUMENT, "BYTES end inside an element");
        }
        OrtStatus *result =
            ort->api->GetResizedStringTensorElementBuffer(value, *at, length, &element);
        if (result) {
            return result;
        }
        if (!cursor_read(&cursor, element, length)) {
            return ort->api->CreateStatus(ORT_INVALID_ARGUMENT, "BYTES end inside an element");
        }
        left -= LENGTH_BYTES + length;
        (*at)++;
    }
    return NULL;
}

OrtStatus *string_tensor_new(const struct ort *ort, const sluice_request *const *requests,
                             size_t n_requests, size_t index, const int64_t *dims,
                             OrtValue **value) {
    size_t at = 0;
    *value = NULL;
    OrtStatus *result =
        ort->api->CreateTensorAsOrtValue(ort->allocator, dims, requests[0]->inputs[index].rank,
                                         ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, value);
    for (size_t i = 0; !result && i < n_requests; i++) {
        result = elements_fill(ort, &requests[i]->inputs[index], *value, &at);
    }
    if (result) {
        ort->api->ReleaseValue(*value);
        *value = NULL;
    }
    return result;
}

/* The contents are at the end of the block, one after another; each is moved down after its length
 * prefix. A write never overtakes unread bytes: the distance is the length prefixes that are still
 * to be written. */
static int frame_strings(unsigned char *block, size_t n_bytes, const size_t *offsets,
                         size_t count) {
    const unsigned char *contents = block + count * LENGTH_BYTES;
    size_t n_contents = n_bytes - count * LENGTH_BYTES;
    for (size_t i = 0; i < count; i++) {
        size_t length = (i + 1 < count ? offsets[i + 1] : n_contents) - offsets[i];
        if (length > UINT32_MAX) {
            return 0;
        }
        uint32_t prefix = (uint32_t)length;
        unsigned char *to = block + i * LENGTH_BYTES + offsets[i];
        memmove(to + LENGTH_BYTES, contents + offsets[i], length);
        memcpy(to, &prefix, LENGTH_BYTES);
    }
    return 1;
}

sluice_status string_tensor_read(const struct ort *ort, const OrtValue *value, size_t count,
                                 unsigned char **block, size_t *n_bytes, sluice_error *error) {
    static const char doing[] = "strings could not be taken from ONNX Runtime";
    size_t n_contents = 0, *offsets = NULL;
    unsigned char *made = NULL;
    sluice_status status =
        ort_check(ort, ort->api->GetStringTensorDataLength(value, &n_contents), doing, error);
    if (status != SLUICE_OK) {
        return status;
    }
    *n_bytes = count * LENGTH_BYTES + n_contents;
    offsets = calloc(count + 1, sizeof(*offsets));
    made = malloc(*n_bytes + 1);
    if (!offsets || !made) {
        status = error_no_memory(error, "an output of strings");
        goto out;
    }
    status = ort_check(ort,
                       ort->api->GetStringTensorContent(value, made + count * LENGTH_BYTES,
                                                        n_contents, offsets, count),
                       doing, error);
    if (status == SLUICE_OK && !frame_strings(made, *n_bytes, offsets, count)) {
        status = error_set(error, SLUICE_INTERNAL, "a string of an output is over 4 GiB");
    }
out:
    free(offsets);
    if (status == SLUICE_OK) {
        *block = made;
    } else {
        free(made);
    }
    return status;
}
