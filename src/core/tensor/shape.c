/* Overflow-checked products of dimensions, comparison with a specification, and shapes as text. */
#include "core/tensor/shape.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/base/num.h"

bool shape_elements(struct shape shape, uint64_t *out) {
    int64_t product = 1;
    bool empty = false, overflows = false;
    for (size_t i = 0; i < shape.rank; i++) {
        if (shape.dims[i] < 0) {
            return false;
        }
        empty |= shape.dims[i] == 0;
        overflows |= __builtin_mul_overflow(product, shape.dims[i], &product);
    }
    *out = empty ? 0 : (uint64_t)product;
    return empty || !overflows;
}

bool shape_bytes(struct shape shape, enum datatype datatype, uint64_t *out) {
    uint64_t elements;
    size_t size = datatype_size(datatype);
    return size > 0 && shape_elements(shape, &elements) && checked_mul_u64(elements, size, out) &&
           *out <= INT64_MAX;
}

bool shape_matches(struct shape shape, struct shape spec) {
    if (shape.rank != spec.rank) {
        return false;
    }
    for (size_t i = 0; i < shape.rank; i++) {
        if (spec.dims[i] != -1 && spec.dims[i] != shape.dims[i]) {
            return false;
        }
    }
    return true;
}

bool shape_eq(struct shape a, struct shape b) {
    return a.rank == b.rank &&
           (a.rank == 0 || memcmp(a.dims, b.dims, a.rank * sizeof(a.dims[0])) == 0);
}

const char *shape_print(struct shape shape, char out[SHAPE_TEXT_BYTES]) {
    static const char tail[] = ",…]";
    size_t n = 0;
    out[n++] = '[';
    for (size_t i = 0; i < shape.rank; i++) {
        char text[20];
        unsigned len = num_print_i64(text, shape.dims[i]);
        if (n + 1 + len + sizeof(tail) > SHAPE_TEXT_BYTES) {
            memcpy(out + n, tail, sizeof(tail));
            return out;
        }
        if (i > 0) {
            out[n++] = ',';
        }
        memcpy(out + n, text, len);
        n += len;
    }
    memcpy(out + n, "]", 2);
    return out;
}
