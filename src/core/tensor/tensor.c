/* Finding a tensor by name, printing a name or an origin in a message, and copying pieces. */
#include "core/tensor/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

size_t tensor_spec_find(const struct tensor_spec *specs, size_t n, struct str name) {
    for (size_t i = 0; i < n; i++) {
        if (str_eq(specs[i].name, name)) {
            return i;
        }
    }
    return SIZE_MAX;
}

const char *tensor_name_print(struct str name, char out[TENSOR_NAME_TEXT_BYTES]) {
    static const char cut[] = "…\"";
    size_t capacity = TENSOR_NAME_TEXT_BYTES - 1 - sizeof(cut);
    size_t len = name.len;
    if (len > capacity) { /* cut between characters, if it is text */
        for (len = capacity; len > capacity - 3 && ((unsigned char)name.ptr[len] & 0xc0) == 0x80;
             len--) {
        }
    }
    out[0] = '"';
    for (size_t i = 0; i < len; i++) {
        out[1 + i] = name.ptr[i] != '\0' ? name.ptr[i] : '?';
    }
    if (len < name.len) {
        memcpy(out + 1 + len, cut, sizeof(cut));
    } else {
        memcpy(out + 1 + len, "\"", 2);
    }
    return out;
}

const char *tensor_origin_print(const struct model_spec *model, struct str origin,
                                char out[ORIGIN_TEXT_BYTES]) {
    char name[TENSOR_NAME_TEXT_BYTES];
    tensor_name_print(model->name, name);
    if (origin.len == 0) {
        snprintf(out, ORIGIN_TEXT_BYTES, " (model %s)", name);
    } else {
        snprintf(out, ORIGIN_TEXT_BYTES, " (model %s: %.*s)", name, STR_ARG(origin));
    }
    return out;
}

size_t pieces_copy(const struct piece *pieces, size_t n, void *out, size_t capacity) {
    char *to = out;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        assert(pieces[i].n_bytes <= capacity - at);
        if (pieces[i].n_bytes > 0) { /* an empty piece may have no address */
            memcpy(to + at, pieces[i].data, pieces[i].n_bytes);
            at += pieces[i].n_bytes;
        }
    }
    return at;
}
