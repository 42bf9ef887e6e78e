/* The data of a tensor from a JSON array: how much memory it takes, who reads it, and what to say
 * when it does not fit. Memory is taken only for elements that are there: a shape alone costs
 * nothing. */
#include "codec/kserve/data.h"

#include <assert.h>
#include <inttypes.h>

#include "codec/json/path.h"
#include "codec/json/read.h"
#include "codec/kserve/data_elements.h"
#include "core/base/checked.h"
#include "core/tensor/bytes.h"

/* What an element has to be, by datatype. */
static const char *const expected_elements[DT_COUNT_] = {
    [DT_BOOL] = "true or false",
    [DT_UINT8] = "a whole number from 0 to 255",
    [DT_UINT16] = "a whole number from 0 to 65535",
    [DT_UINT32] = "a whole number from 0 to 4294967295",
    [DT_UINT64] = "a whole number from 0 to 18446744073709551615",
    [DT_INT8] = "a whole number from -128 to 127",
    [DT_INT16] = "a whole number from -32768 to 32767",
    [DT_INT32] = "a whole number from -2147483648 to 2147483647",
    [DT_INT64] = "a whole number from -9223372036854775808 to 9223372036854775807",
    [DT_FP16] = "a number within the range of FP16",
    [DT_FP32] = "a number within the range of FP32",
    [DT_FP64] = "a number within the range of FP64",
    [DT_BYTES] = "a string",
    [DT_BF16] = "a number within the range of BF16",
};

enum status v2_shape_count(const struct json_tree *tree, yyjson_val *val, struct shape shape,
                           const struct json_limits *limits, uint64_t *n_elements,
                           struct error *err) {
    char text[SHAPE_TEXT_BYTES];
    if (!shape_elements(shape, n_elements)) {
        return json_error(tree, val, ST_BAD_SHAPE, err,
                          "expected a shape of at most 9223372036854775807 elements, got %s",
                          shape_print(shape, text));
    }
    if (*n_elements > limits->max_tensor_elements) {
        return json_error(tree, val, ST_TOO_MANY_ELEMENTS, err,
                          "shape %s has %" PRIu64 " elements; the limit is %" PRIu64
                          " (--max-tensor-elements)",
                          shape_print(shape, text), *n_elements, limits->max_tensor_elements);
    }
    return ST_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Counts, and adds up what the framed elements take. */
static struct v2_elements measure_strings(struct json_span span, uint64_t max, size_t *n_bytes) {
    struct v2_elements read = {0};
    *n_bytes = 0;
    for (yyjson_val *val = span.first; val < span.end; val++) {
        if (unsafe_yyjson_is_arr(val)) {
            continue;
        }
        if (!unsafe_yyjson_is_str(val) || json_str(val).len > UINT32_MAX ||
            !checked_add(*n_bytes, BYTES_LENGTH_BYTES + json_str(val).len, n_bytes)) {
            read.bad = val;
            break;
        }
        if (read.n++ == max) {
            break;
        }
    }
    return read;
}

static void frame_strings(struct json_span span, char *out) {
    for (yyjson_val *val = span.first; val < span.end; val++) {
        if (!unsafe_yyjson_is_arr(val)) {
            struct str text = json_str(val);
            bytes_encode_length(out, (uint32_t)text.len);
            memcpy(out + BYTES_LENGTH_BYTES, text.ptr, text.len);
            out += BYTES_LENGTH_BYTES + text.len;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Elements, whatever they are. */
static uint64_t count_elements(struct json_span span) {
    uint64_t n = 0;
    for (yyjson_val *val = span.first; val < span.end;
         val = unsafe_yyjson_is_arr(val) ? val + 1 : json_next(val)) {
        n += !unsafe_yyjson_is_arr(val);
    }
    return n;
}

static enum status wrong_count(const struct json_tree *tree, yyjson_val *array,
                               const struct tensor *tensor, uint64_t n_elements,
                               struct error *err) {
    char shape[SHAPE_TEXT_BYTES];
    return json_error(tree, array, ST_BAD_DATA, err,
                      "expected %" PRIu64 " element%s for shape %s, got %" PRIu64, n_elements,
                      n_elements == 1 ? "" : "s", shape_print(tensor->shape, shape),
                      count_elements(json_value_span(array)));
}

static enum status no_memory(const struct json_tree *tree, yyjson_val *array, struct error *err) {
    return json_error(tree, array, ST_NO_MEMORY, err, "out of memory for the elements");
}

/* Reads packed elements, or only measures strings. */
static struct v2_elements read_elements(struct json_span span, enum datatype datatype,
                                        unsigned char *out, uint64_t max, size_t *n_bytes) {
    switch (datatype) {
    case DT_BOOL:
        return v2_data_read_bools(span, out, max);
    case DT_UINT8:
    case DT_UINT16:
    case DT_UINT32:
    case DT_UINT64:
    case DT_INT8:
    case DT_INT16:
    case DT_INT32:
    case DT_INT64:
        return v2_data_read_integers(span, datatype, out, max);
    case DT_FP16:
    case DT_BF16:
    case DT_FP32:
    case DT_FP64:
        return v2_data_read_floats(span, datatype, out, max);
    case DT_BYTES:
        return measure_strings(span, max, n_bytes);
    case DT_INVALID:
    case DT_COUNT_:
        break;
    }
    assert(false); /* a datatype that did not come through datatype_parse */
    return (struct v2_elements){0};
}

enum status v2_data_read_counted(const struct json_tree *tree, yyjson_val *value,
                                 uint64_t n_elements, struct tensor *tensor, struct error *err) {
    struct json_span span = json_value_span(value);
    size_t n_bytes = (size_t)n_elements * datatype_size(tensor->datatype);
    unsigned char *data = arena_alloc(tree->arena, n_bytes);
    struct piece *piece = arena_alloc(tree->arena, sizeof(*piece));
    if (!data || !piece) {
        return no_memory(tree, value, err);
    }
    struct v2_elements read = read_elements(span, tensor->datatype, data, n_elements, &n_bytes);
    if (read.bad) {
        return json_error_got(tree, read.bad, ST_BAD_FIELD, err, "expected %s",
                              expected_elements[tensor->datatype]);
    }
    if (read.n != n_elements) {
        return wrong_count(tree, value, tensor, n_elements, err);
    }
    if (tensor->datatype == DT_BYTES) {
        data = arena_alloc(tree->arena, n_bytes);
        if (!data) {
            return no_memory(tree, value, err);
        }
        frame_strings(span, (char *)data);
    }
    *piece = (struct piece){data, n_bytes};
    tensor->pieces = piece;
    tensor->n_pieces = 1;
    tensor->n_bytes = n_bytes;
    return ST_OK;
}

enum status v2_data_read(const struct json_tree *tree, yyjson_val *array, uint64_t n_elements,
                         struct tensor *tensor, struct error *err) {
    enum status status = json_expect_array(tree, array, err);
    if (status != ST_OK) {
        return status;
    }
    struct json_span span = json_value_span(array);
    /* As many elements as values must be there, or more: so the tree is larger than what is
     * taken. */
    if (n_elements >= (uint64_t)(span.end - span.first)) {
        return wrong_count(tree, array, tensor, n_elements, err);
    }
    return v2_data_read_counted(tree, array, n_elements, tensor, err);
}
