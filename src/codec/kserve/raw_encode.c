/* A raw binary request as a client sends it: tensor bytes, nothing else. */
#include <assert.h>

#include "codec/kserve/json.h"
#include "codec/kserve/request_encode.h"
#include "core/tensor/bytes.h"

static enum status wrong_size(const struct tensor *tensor, struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES], shape[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_DATA, "input %s: %zu bytes don't fit %s of shape %s%s",
                     tensor_name_print(tensor->name, name), tensor->n_bytes,
                     datatype_name(tensor->datatype), shape_print(tensor->shape, shape),
                     tensor->datatype == DT_BYTES ? " (a raw request has one element)" : "");
}

/* The first bytes of a tensor, wherever its pieces cut them. */
static void copy_front(const struct tensor *tensor, unsigned char *out, size_t n_bytes) {
    for (size_t i = 0; n_bytes > 0; i++) {
        size_t n = tensor->pieces[i].n_bytes < n_bytes ? tensor->pieces[i].n_bytes : n_bytes;
        if (n > 0) {
            memcpy(out, tensor->pieces[i].data, n);
        }
        out += n;
        n_bytes -= n;
    }
}

/* Clause: "If the data type is BYTE, the shape must be [1]": its length is the body's. */
static enum status check_element(const struct tensor *tensor, struct error *err) {
    unsigned char front[BYTES_LENGTH_BYTES];
    unsigned char want[BYTES_LENGTH_BYTES];
    uint64_t n_elements;
    if (!shape_elements(tensor->shape, &n_elements) || n_elements != 1 ||
        tensor->n_bytes < BYTES_LENGTH_BYTES || tensor->n_bytes - BYTES_LENGTH_BYTES > UINT32_MAX) {
        return wrong_size(tensor, err);
    }
    copy_front(tensor, front, BYTES_LENGTH_BYTES);
    bytes_encode_length(want, (uint32_t)(tensor->n_bytes - BYTES_LENGTH_BYTES));
    return memcmp(front, want, BYTES_LENGTH_BYTES) == 0 ? ST_OK : wrong_size(tensor, err);
}

/* Takes `n_bytes` off the front of the pieces. */
static void drop_front(struct v2_pieces *pieces, size_t n_bytes) {
    size_t first = 1; /* the place of the JSON is 0 */
    pieces->n_bytes -= n_bytes;
    while (n_bytes > 0) {
        struct piece *piece = &pieces->items[first];
        size_t n = piece->n_bytes < n_bytes ? piece->n_bytes : n_bytes;
        *piece = (struct piece){(const char *)piece->data + n, piece->n_bytes - n};
        n_bytes -= n;
        first += piece->n_bytes == 0;
    }
    memmove(pieces->items + 1, pieces->items + first, (pieces->n - first) * sizeof(struct piece));
    pieces->n -= first - 1;
}

enum status v2_raw_encode(struct arena *arena, const struct tensor *tensor,
                          struct v2_request_body *out, struct error *err) {
    struct v2_pieces pieces;
    uint64_t n_bytes;
    enum status status = ST_OK;
    *out = (struct v2_request_body){.binary = true};
    if (tensor->datatype == DT_BYTES) {
        status = check_element(tensor, err);
    } else if (!shape_bytes(tensor->shape, tensor->datatype, &n_bytes) ||
               n_bytes != tensor->n_bytes) {
        status = wrong_size(tensor, err);
    }
    if (status != ST_OK) {
        return status;
    }
    if (!v2_pieces_init(&pieces, arena, tensor->n_pieces)) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the request");
    }
    v2_pieces_add(&pieces, tensor);
    if (tensor->datatype == DT_BYTES) {
        drop_front(&pieces, BYTES_LENGTH_BYTES);
    }
    out->json = str_make("", 0);
    out->pieces = v2_pieces_finish(&pieces, out->json);
    out->n_pieces = pieces.n;
    out->n_bytes = pieces.n_bytes;
    return ST_OK;
}
