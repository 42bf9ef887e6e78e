/* Reshaping compares the runs of fixed dimensions between variable ones. */
#include "serve/config/reshape.h"

#include "core/base/checked.h"

/* The product of the fixed dimensions from *at up to the next -1 or the last dimension; *at then
 * points to it. */
static bool fixed_product(struct shape shape, size_t *at, uint64_t *product) {
    *product = 1;
    while (*at < shape.rank && shape.dims[*at] >= 0) {
        if (!checked_mul_u64(*product, (uint64_t)shape.dims[*at], product)) {
            return false;
        }
        (*at)++;
    }
    return true;
}

bool reshape_is_valid(struct shape from, struct shape to) {
    size_t a = 0, b = 0;
    for (;;) {
        uint64_t left, right;
        if (!fixed_product(from, &a, &left) || !fixed_product(to, &b, &right) || left != right) {
            return false;
        }
        if (a == from.rank || b == to.rank) {
            return a == from.rank && b == to.rank;
        }
        a++; /* skip the -1 of both */
        b++;
    }
}

bool reshape_apply(struct shape from, struct shape to, struct shape actual, int64_t *out) {
    if (!shape_matches(actual, from)) {
        return false;
    }
    size_t at = 0;
    for (size_t i = 0; i < to.rank; i++) {
        out[i] = to.dims[i];
        if (to.dims[i] < 0) {
            while (from.dims[at] >= 0) {
                at++;
            }
            out[i] = actual.dims[at++];
        }
    }
    return true;
}
