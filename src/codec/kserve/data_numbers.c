/* JSON numbers, true and false to packed elements. It refuses to narrow: an integer that does not
 * fit its datatype, a fraction for an integer, a finite number that would become infinite. A number
 * for a float datatype goes through the nearest double, as in the protocol's clients. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "codec/json/read.h"
#include "codec/kserve/data_elements.h"
#include "core/base/num.h"
#include "core/tensor/half.h"

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

struct v2_elements v2_data_read_bools(struct json_span span, unsigned char *out, uint64_t max) {
    struct v2_elements read = {0};
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

/* Inlined once per datatype, so that its loop has constants in it. */
__attribute__((always_inline)) static inline struct v2_elements read_integers(
    struct json_span span, int64_t low, uint64_t high, size_t size, unsigned char *out,
    uint64_t max) {
    struct v2_elements read = {0};
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

struct v2_elements v2_data_read_integers(struct json_span span, enum datatype datatype,
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

/* Returns: false when `val` is no number, or one that no double can hold. */
static inline bool number_of(yyjson_val *val, double *out) {
    switch (tag_of(val)) {
    case TAG_REAL:
        *out = val->uni.f64;
        return true;
    case TAG_UINT:
        *out = (double)val->uni.u64;
        return true;
    case TAG_SINT: /* -0 is the one whose sign an integer can't hold */
        *out = val->uni.i64 == 0 ? -0.0 : (double)val->uni.i64;
        return true;
    case TAG_RAW: /* more digits than 64 bits hold, more than a double does, or no finite number */
        return json_non_finite(val, out) || num_parse_f64(json_str(val), out);
    default:
        return false;
    }
}

/* From here on a double rounds to the infinity of FP32: half a step above its greatest. */
static const double fp32_overflow = 0x1.ffffffp127;

/* Stores `number` as `datatype`. Returns: false when it is finite and the element would not be. */
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
__attribute__((always_inline)) static inline struct v2_elements read_floats(
    struct json_span span, enum datatype datatype, size_t size, unsigned char *out, uint64_t max) {
    struct v2_elements read = {0};
    double number;
    for (yyjson_val *val = span.first; val < span.end; val++) {
        if (unsafe_yyjson_is_arr(val)) {
            continue;
        }
        if (!number_of(val, &number)) {
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

struct v2_elements v2_data_read_floats(struct json_span span, enum datatype datatype,
                                       unsigned char *out, uint64_t max) {
    switch ((int)datatype) {
    case DT_FP32:
        return read_floats(span, DT_FP32, 4, out, max);
    case DT_FP64:
        return read_floats(span, DT_FP64, 8, out, max);
    default:
        assert(datatype == DT_FP16 || datatype == DT_BF16);
        return read_floats(span, datatype, 2, out, max);
    }
}
