/* Tensor data from a JSON array. One pass over the array's values, where nested arrays are headers
 * between the elements, writes packed elements. An integer that does not fit its datatype, a
 * fraction for an integer and a finite number that would become infinite are errors. A number for a
 * float datatype goes through the nearest double, as in the protocol's clients. Memory is allocated
 * only for elements that are present: a shape alone costs nothing. */
#include "codec/kserve/json_elements.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codec/json/tree.h"
#include "core/base/checked.h"
#include "core/base/num.h"
#include "core/base/plural.h"
#include "core/tensor/bytes.h"
#include "core/tensor/float16.h"

/* Result of reading elements. */
struct read_result {
    uint64_t n;      /* elements read; max + 1 if the array has more than max */
    yyjson_val *bad; /* the value that is not an element of this datatype; NULL: none */
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "elements are stored as they are in memory");

enum {
    TAG_REAL = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL,
    TAG_UINT = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_UINT,
    TAG_SINT = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_SINT,
    TAG_TRUE = YYJSON_TYPE_BOOL | YYJSON_SUBTYPE_TRUE,
    TAG_FALSE = YYJSON_TYPE_BOOL | YYJSON_SUBTYPE_FALSE,
    TAG_RAW = YYJSON_TYPE_RAW | YYJSON_SUBTYPE_NONE,
};

static unsigned tag_of(const yyjson_val *val) {
    return (unsigned)(val->tag & YYJSON_TAG_MASK);
}

/* ---- BOOL ------------------------------------------------------------------------------------ */

static struct read_result read_bools(struct json_span span, unsigned char *out, uint64_t max) {
    struct read_result read = {0};
    for (yyjson_val *val = span.first; val < span.end; val++) {
        if (unsafe_yyjson_is_arr(val)) {
            continue;
        }
        unsigned tag = tag_of(val);
        if (tag != TAG_TRUE && tag != TAG_FALSE) {
            read.bad = val;
            break;
        }
        if (read.n++ == max) {
            break;
        }
        *out++ = tag == TAG_TRUE;
    }
    return read;
}

/* ---- integers -------------------------------------------------------------------------------- */

/* Inlined once per datatype, so that the loop has constant bounds and size. */
__attribute__((always_inline)) static inline struct read_result read_integers(
    struct json_span span, int64_t low, uint64_t high, size_t size, unsigned char *out,
    uint64_t max) {
    struct read_result read = {0};
    for (yyjson_val *val = span.first; val < span.end; val++) {
        if (unsafe_yyjson_is_arr(val)) {
            continue;
        }
        unsigned tag = tag_of(val);
        bool fits = tag == TAG_UINT ? val->uni.u64 <= high : tag == TAG_SINT && val->uni.i64 >= low;
        if (!fits) {
            read.bad = val;
            break;
        }
        if (read.n++ == max) {
            break;
        }
        memcpy(out, &val->uni.u64, size); /* the low bytes: two's complement of any width */
        out += size;
    }
    return read;
}

static struct read_result read_integers_of(struct json_span span, enum datatype datatype,
                                           unsigned char *out, uint64_t max) {
    switch ((int)datatype) {
    case DT_UINT8:
        return read_integers(span, 0, UINT8_MAX, 1, out, max);
    case DT_UINT16:
        return read_integers(span, 0, UINT16_MAX, 2, out, max);
    case DT_UINT32:
        return read_integers(span, 0, UINT32_MAX, 4, out, max);
    case DT_UINT64:
        return read_integers(span, 0, UINT64_MAX, 8, out, max);
    case DT_INT8:
        return read_integers(span, INT8_MIN, INT8_MAX, 1, out, max);
    case DT_INT16:
        return read_integers(span, INT16_MIN, INT16_MAX, 2, out, max);
    case DT_INT32:
        return read_integers(span, INT32_MIN, INT32_MAX, 4, out, max);
    default:
        assert(datatype == DT_INT64);
        return read_integers(span, INT64_MIN, INT64_MAX, 8, out, max);
    }
}

/* ---- floats ---------------------------------------------------------------------------------- */

/* The text of a number that JSON lacks, as `non_finite` prints it: exactly the bare words. */
static bool word_of_string(struct str text, double *out) {
    if (str_is(text, "NaN")) {
        *out = (double)NAN;
        return true;
    }
    bool negative = text.len > 0 && text.ptr[0] == '-';
    *out = negative ? -(double)INFINITY : (double)INFINITY;
    return str_is(text, negative ? "-Infinity" : "Infinity");
}

/* `replaced`: see json_tree.replaced_non_finite. Returns: false if `val` is not a number, or one
 * that no double can hold. */
static inline bool number_of(yyjson_val *val, bool replaced, double *out) {
    switch (tag_of(val)) {
    case TAG_REAL:
        *out = val->uni.f64;
        return true;
    case TAG_UINT:
        *out = (double)val->uni.u64;
        return true;
    case TAG_SINT: /* -0: an integer has no sign bit for it */
        *out = val->uni.i64 == 0 ? -0.0 : (double)val->uni.i64;
        return true;
    case TAG_RAW: /* more than 64 bits, more than a double, or not finite */
        return json_non_finite(val, out) || num_parse_f64(json_str(val), out);
    case YYJSON_TYPE_NULL:
        *out = (double)NAN;
        return replaced;
    default:
        return replaced && json_is_string(val) && word_of_string(json_str(val), out);
    }
}

/* From here on a double rounds to the infinity of FP32: half a step above FP32's maximum. */
static const double fp32_overflow = 0x1.ffffffp127;

/* Stores `number` as `datatype`. Returns: false if `number` is finite and the element would not
 * be. */
static inline bool store_float(double number, enum datatype datatype, unsigned char *out) {
    if (datatype == DT_FP64) {
        memcpy(out, &number, sizeof(number));
        return true;
    }
    if (datatype == DT_FP32) {
        if (fabs(number) >= fp32_overflow && isfinite(number)) {
            return false;
        }
        float narrow = (float)number;
        memcpy(out, &narrow, sizeof(narrow));
        return true;
    }
    uint16_t bits = datatype == DT_FP16 ? half_from_double(number) : bfloat_from_double(number);
    uint16_t infinity = datatype == DT_FP16 ? 0x7c00 : 0x7f80;
    memcpy(out, &bits, sizeof(bits));
    return (bits & 0x7fff) != infinity || isinf(number);
}

/* Inlined once per datatype, as above. */
__attribute__((always_inline)) static inline struct read_result read_floats(
    struct json_span span, bool replaced, enum datatype datatype, size_t size, unsigned char *out,
    uint64_t max) {
    struct read_result read = {0};
    double number;
    for (yyjson_val *val = span.first; val < span.end; val++) {
        if (unsafe_yyjson_is_arr(val)) {
            continue;
        }
        if (!number_of(val, replaced, &number)) {
            read.bad = val;
            break;
        }
        if (read.n++ == max) {
            break;
        }
        if (!store_float(number, datatype, out)) {
            read.bad = val;
            break;
        }
        out += size;
    }
    return read;
}

static struct read_result read_floats_of(struct json_span span, bool replaced,
                                         enum datatype datatype, unsigned char *out, uint64_t max) {
    switch ((int)datatype) {
    case DT_FP32:
        return read_floats(span, replaced, DT_FP32, 4, out, max);
    case DT_FP64:
        return read_floats(span, replaced, DT_FP64, 8, out, max);
    default:
        assert(datatype == DT_FP16 || datatype == DT_BF16);
        return read_floats(span, replaced, datatype, 2, out, max);
    }
}

/* The end of "expected ...", by datatype. */
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
                          "shape %s causes total element count to exceed maximum size of "
                          "9223372036854775807",
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

/* Counts the strings and sums up the size of their framed elements. */
static struct read_result measure_strings(struct json_span span, uint64_t max, size_t *n_bytes) {
    struct read_result read = {0};
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

/* ---- elements to a tensor -------------------------------------------------------------------- */

/* Counts elements of any type. */
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
                      plural_s(n_elements), shape_print(tensor->shape, shape),
                      count_elements(json_value_span(array)));
}

/* Reads packed elements; strings are only measured. */
static struct read_result read_elements(const struct json_tree *tree, struct json_span span,
                                        enum datatype datatype, unsigned char *out, uint64_t max,
                                        size_t *n_bytes) {
    switch (datatype) {
    case DT_BOOL:
        return read_bools(span, out, max);
    case DT_UINT8:
    case DT_UINT16:
    case DT_UINT32:
    case DT_UINT64:
    case DT_INT8:
    case DT_INT16:
    case DT_INT32:
    case DT_INT64:
        return read_integers_of(span, datatype, out, max);
    case DT_FP16:
    case DT_BF16:
    case DT_FP32:
    case DT_FP64:
        return read_floats_of(span, tree->replaced_non_finite, datatype, out, max);
    case DT_BYTES:
        return measure_strings(span, max, n_bytes);
    case DT_INVALID:
    case DT_COUNT_:
        break;
    }
    assert(false); /* datatype_parse returns no other datatype */
    return (struct read_result){0};
}

enum status v2_data_read_counted(const struct json_tree *tree, yyjson_val *value,
                                 uint64_t n_elements, struct tensor *tensor, struct error *err) {
    struct json_span span = json_value_span(value);
    size_t n_bytes = (size_t)n_elements * datatype_size(tensor->datatype);
    unsigned char *data = arena_alloc(tree->arena, n_bytes);
    struct piece *piece = arena_alloc(tree->arena, sizeof(*piece));
    if (!data || !piece) {
        return json_error(tree, value, ST_NO_MEMORY, err, "out of memory for the elements");
    }
    struct read_result read =
        read_elements(tree, span, tensor->datatype, data, n_elements, &n_bytes);
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
            return json_error(tree, value, ST_NO_MEMORY, err, "out of memory for the elements");
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
    /* The array must have at least `n_elements` values. So the allocation is smaller than the
     * tree. */
    if (n_elements >= (uint64_t)(span.end - span.first)) {
        return wrong_count(tree, array, tensor, n_elements, err);
    }
    return v2_data_read_counted(tree, array, n_elements, tensor, err);
}

/* ---- data without a request ------------------------------------------------------------------ */

enum status v2_data_text_parse(struct arena *arena, struct str text,
                               const struct json_limits *limits, struct tensor *tensor,
                               struct error *err) {
    struct json_tree tree;
    enum status status = json_tree_parse(&tree, "data", arena, text, limits, err);
    if (status == ST_OK) {
        uint64_t n_elements;
        tree.path_has_root_name = true;
        status = v2_shape_count(&tree, tree.root, tensor->shape, limits, &n_elements, err);
        if (status == ST_OK) {
            status = v2_data_read(&tree, tree.root, n_elements, tensor, err);
        }
        json_tree_free_values(&tree);
    }
    return status;
}
