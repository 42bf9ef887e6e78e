/* Arrays against dimensions. The first array of each depth says what the value's own sizes are; the
 * others must be as it is. It refuses to guess: sizes that fit in no stated way are an error. */
#include "codec/mip/item_shape.h"

#include <inttypes.h>

#include "codec/json/path.h"
#include "codec/json/read.h"
#include "core/base/checked.h"

/* The value's own shape. Starts with 0. */
struct nesting {
    int64_t sizes[SHAPE_MAX_RANK]; /* of the first array at each depth */
    size_t rank;
};

bool mip_item_shape_is_single(struct shape dims) {
    for (size_t i = 0; i < dims.rank; i++) {
        if (dims.dims[i] == 0 || dims.dims[i] > 1) {
            return false;
        }
    }
    return true;
}

static enum status measure_nesting(const struct json_tree *tree, struct nesting *out,
                                   struct error *err) {
    for (yyjson_val *val = tree->root; unsafe_yyjson_is_arr(val); val = json_first(val)) {
        if (out->rank == SHAPE_MAX_RANK) {
            return json_error(tree, val, ST_BAD_SHAPE, err, "expected at most %d arrays nested",
                              SHAPE_MAX_RANK);
        }
        out->sizes[out->rank++] = (int64_t)json_count(val);
        if (json_count(val) == 0) {
            break;
        }
    }
    return ST_OK;
}

/* ---- the ways to fit ------------------------------------------------------------------------- */

/* Do `n` sizes fit as many dimensions? */
static bool fits_each(const int64_t *sizes, const int64_t *dims, size_t n, int64_t *out) {
    for (size_t i = 0; i < n; i++) {
        if (dims[i] >= 0 && dims[i] != sizes[i]) {
            return false;
        }
        out[i] = sizes[i];
    }
    return true;
}

/* One by one from the last, ones in front. */
static bool fits_from_back(const struct nesting *nesting, struct shape dims, int64_t *out) {
    size_t common = nesting->rank < dims.rank ? nesting->rank : dims.rank;
    size_t extra = nesting->rank - common, missing = dims.rank - common;
    for (size_t i = 0; i < extra; i++) {
        if (nesting->sizes[i] != 1) {
            return false;
        }
    }
    for (size_t i = 0; i < missing; i++) {
        out[i] = 1;
    }
    return mip_item_shape_is_single((struct shape){dims.dims, missing}) &&
           fits_each(nesting->sizes + extra, dims.dims + missing, common, out + missing);
}

/* From the first, up to an array that is empty. */
static bool fits_until_empty(const struct nesting *nesting, struct shape dims, int64_t *out) {
    size_t rank = nesting->rank;
    if (rank == 0 || rank >= dims.rank || nesting->sizes[rank - 1] != 0) {
        return false;
    }
    for (size_t i = rank; i < dims.rank; i++) {
        out[i] = dims.dims[i] < 0 ? 0 : dims.dims[i];
    }
    return fits_each(nesting->sizes, dims.dims, rank, out);
}

/* One array of all elements, perhaps in arrays of one. */
static bool fits_flat(const struct nesting *nesting, struct shape dims, int64_t *out) {
    size_t free_dim = SIZE_MAX;
    uint64_t product = 1;
    for (size_t i = 0; i < nesting->rank; i++) {
        if (i + 1 < nesting->rank && nesting->sizes[i] != 1) {
            return false;
        }
    }
    for (size_t i = 0; i < dims.rank; i++) {
        bool second = dims.dims[i] < 0 && free_dim != SIZE_MAX;
        if (second ||
            (dims.dims[i] >= 0 && !checked_mul_u64(product, (uint64_t)dims.dims[i], &product))) {
            return false;
        }
        free_dim = dims.dims[i] < 0 ? i : free_dim;
        out[i] = dims.dims[i];
    }
    uint64_t n = nesting->rank > 0 ? (uint64_t)nesting->sizes[nesting->rank - 1] : 1;
    if (free_dim == SIZE_MAX) {
        return n == product;
    }
    out[free_dim] = product > 0 ? (int64_t)(n / product) : 0;
    return n == (uint64_t)out[free_dim] * product;
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static enum status shape_error(const struct json_tree *tree, const struct nesting *nesting,
                               struct shape dims, struct error *err) {
    char want[SHAPE_TEXT_BYTES], got[SHAPE_TEXT_BYTES];
    yyjson_val *val = tree->root;
    shape_print(dims, want);
    shape_print((struct shape){nesting->sizes, nesting->rank}, got);
    if (nesting->rank == 0) {
        return json_error_got(tree, val, ST_BAD_SHAPE, err, "expected an array of shape %s", want);
    }
    if (dims.rank == 0) {
        return json_error(tree, val, ST_BAD_SHAPE, err,
                          "expected a single value, got an array of shape %s", got);
    }
    for (size_t i = 0; nesting->rank == dims.rank && i < dims.rank; i++, val = json_first(val)) {
        if (dims.dims[i] >= 0 && dims.dims[i] != nesting->sizes[i]) {
            return json_error_got(tree, val, ST_BAD_SHAPE, err,
                                  "expected an array of %" PRId64 " for shape %s", dims.dims[i],
                                  want);
        }
    }
    return json_error(tree, tree->root, ST_BAD_SHAPE, err,
                      "expected an array of shape %s, got one of shape %s", want, got);
}

/* Is every array as the first of its depth, and what is in the deepest no array? */
static enum status check_rows(const struct json_tree *tree, const struct nesting *nesting,
                              struct error *err) {
    uint64_t left[SHAPE_MAX_RANK + 1] = {1}; /* values still to come in the array open here */
    size_t depth = 0;
    for (yyjson_val *val = tree->root; val < tree->end;) {
        while (left[depth] == 0) {
            depth--;
        }
        left[depth]--;
        if (depth == nesting->rank) {
            if (unsafe_yyjson_is_arr(val)) {
                return json_error_got(tree, val, ST_BAD_SHAPE, err,
                                      "expected an element, like the first at this depth");
            }
            val = json_next(val);
            continue;
        }
        int64_t size = nesting->sizes[depth];
        if (!unsafe_yyjson_is_arr(val) || json_count(val) != (uint64_t)size) {
            return json_error_got(tree, val, ST_BAD_SHAPE, err,
                                  "expected an array of %" PRId64 ", like the first at this depth",
                                  size);
        }
        left[++depth] = (uint64_t)size;
        val++;
    }
    return ST_OK;
}

enum status mip_item_shape_fit(const struct json_tree *tree, struct shape dims, int64_t *out,
                               struct error *err) {
    struct nesting nesting = {.rank = 0};
    enum status status = measure_nesting(tree, &nesting, err);
    if (status != ST_OK) {
        return status;
    }
    if (!fits_until_empty(&nesting, dims, out) && !fits_from_back(&nesting, dims, out) &&
        !fits_flat(&nesting, dims, out)) {
        return shape_error(tree, &nesting, dims, err);
    }
    return check_rows(tree, &nesting, err);
}
