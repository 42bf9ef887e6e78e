/* Shapes of inputs: deduced, or read from a flag. */
#include "program/requests/infer_shape.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/num.h"
#include "core/base/plural.h"

static enum status shape_mismatch(const struct infer_extent *data, const struct tensor_spec *spec,
                                  struct error *err) {
    char is[SHAPE_TEXT_BYTES], wanted[SHAPE_TEXT_BYTES];
    shape_print(spec->shape, wanted);
    if (data->has_shape) {
        return error_set(err, ST_BAD_SHAPE,
                         "input \"%.*s\": the data has shape %s, and the model takes %s (-1: any "
                         "size). Give the shape with --shape %.*s=…",
                         STR_ARG(spec->name), shape_print(data->shape, is), wanted,
                         STR_ARG(spec->name));
    }
    return error_set(err, ST_BAD_SHAPE,
                     "input \"%.*s\": %" PRIu64
                     " element%s cannot be laid out in the model's shape %s "
                     "(-1: any size) in one way. Give the shape with --shape %.*s=…",
                     STR_ARG(spec->name), data->n_elements, plural_s(data->n_elements), wanted,
                     STR_ARG(spec->name));
}

/* Replaces the one -1 in `dims` so that `n` elements fit. */
static bool fill_open_dim(int64_t *dims, size_t rank, uint64_t n) {
    size_t free_at = rank;
    uint64_t product = 1;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            if (free_at < rank) {
                return false;
            }
            free_at = i;
        } else if (__builtin_mul_overflow(product, (uint64_t)dims[i], &product)) {
            return false;
        }
    }
    if (free_at == rank) {
        return product == n;
    }
    if (product == 0 || n % product != 0 || n / product > INT64_MAX) {
        return false;
    }
    dims[free_at] = (int64_t)(n / product);
    return true;
}

static enum status lay_out(struct arena *arena, const struct infer_extent *data,
                           const struct tensor_spec *spec, struct shape *out, struct error *err) {
    size_t rank = spec->shape.rank, n_free = 0;
    int64_t *dims = arena_calloc(arena, rank, sizeof(*dims));
    for (size_t i = 0; i < rank; i++) {
        dims[i] = spec->shape.dims[i];
        n_free += dims[i] < 0;
    }
    if (n_free == 2 && dims[0] < 0) {
        dims[0] = 1;
    }
    if (!fill_open_dim(dims, rank, data->n_elements)) {
        return shape_mismatch(data, spec, err);
    }
    *out = (struct shape){dims, rank};
    return ST_OK;
}

enum status infer_shape_resolve(struct arena *arena, const struct infer_extent *data,
                                const struct tensor_spec *spec, struct shape *out,
                                struct error *err) {
    struct shape wanted = spec->shape;
    if (data->has_shape && shape_matches(data->shape, wanted)) {
        *out = data->shape;
        return ST_OK;
    }
    if (data->has_shape && wanted.rank > 0 && wanted.dims[0] == -1 &&
        shape_matches(data->shape, (struct shape){wanted.dims + 1, wanted.rank - 1})) {
        size_t rank = data->shape.rank + 1;
        int64_t *dims = arena_calloc(arena, rank, sizeof(*dims));
        dims[0] = 1;
        memcpy(dims + 1, data->shape.dims, data->shape.rank * sizeof(*dims));
        *out = (struct shape){dims, rank};
        return ST_OK;
    }
    if (data->has_shape && data->shape.rank > 1) {
        return shape_mismatch(data, spec, err);
    }
    return lay_out(arena, data, spec, out, err);
}

enum status infer_shape_parse(struct arena *arena, struct str text, struct shape *out,
                              struct error *err) {
    struct str rest = text;
    if (rest.len >= 2 && rest.ptr[0] == '[' && rest.ptr[rest.len - 1] == ']') {
        rest = str_make(rest.ptr + 1, rest.len - 2);
    }
    int64_t *dims = arena_calloc(arena, SHAPE_MAX_RANK, sizeof(*dims));
    size_t rank = 0;
    while (rest.ptr && !(rank == 0 && rest.len == 0)) {
        uint64_t dim = 0;
        struct str part = str_trim(str_cut(&rest, ','));
        if (rank == SHAPE_MAX_RANK || !num_parse_u64(part, &dim) || dim > INT64_MAX) {
            return error_set(err, ST_BAD_CONFIG,
                             "expected up to %d whole numbers such as 1,28,28, got \"%.*s\"",
                             SHAPE_MAX_RANK, STR_ARG(text));
        }
        dims[rank++] = (int64_t)dim;
    }
    *out = (struct shape){dims, rank};
    return ST_OK;
}
