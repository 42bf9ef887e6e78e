/* Tensor data as JSON. Elements are printed in runs of contiguous memory; an element that straddles
 * two pieces is a run of its own. */
#include "codec/kserve/json_elements_print.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <yyjson.h>

#include "codec/kserve/encode.h"
#include "core/base/num.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"
#include "core/tensor/float16.h"
#include "core/tensor/tensor.h"

/* ---- doubles --------------------------------------------------------------------------------- */

enum {
    CHUNK = 64,
    /* The writer starts with 18 bytes a value and grows by half until each has 25. Both blocks
     * may have to fit into the pool. */
    POOL_BYTES = 4096,
};

/* yyjson's writer prints the shortest text that parses to the same bits, but only whole documents:
 * up to CHUNK doubles become an array. Returns: false when out of memory. */
static bool print_chunk(struct buf *out, const unsigned char *data, size_t n) {
    yyjson_val values[1 + CHUNK];
    char pool[POOL_BYTES];
    size_t len = 0;
    values[0].tag = (uint64_t)n << YYJSON_TAG_BIT | YYJSON_TYPE_ARR;
    values[0].uni.ofs = (n + 1) * sizeof(yyjson_val);
    for (size_t i = 0; i < n; i++) {
        values[1 + i].tag = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL;
        memcpy(&values[1 + i].uni.f64, data + i * sizeof(double), sizeof(double));
    }
    yyjson_alc memory;
    yyjson_alc_pool_init(&memory, pool, sizeof(pool));
    const char *text =
        yyjson_val_write_opts(values, YYJSON_WRITE_ALLOW_INF_AND_NAN, &memory, &len, NULL);
    if (!text) {
        return false;
    }
    buf_add(out, text + 1, len - 2); /* without the brackets */
    buf_add_char(out, ',');
    return !out->failed;
}

void v2_data_print_doubles(struct buf *out, const unsigned char *data, size_t n) {
    while (n > 0 && !out->failed) {
        size_t count = n < CHUNK ? n : CHUNK;
        out->failed = !print_chunk(out, data, count);
        data += count * sizeof(double);
        n -= count;
    }
}

/* ---- numbers that JSON lacks ----------------------------------------------------------------- */

enum v2_non_finite v2_non_finite_parse(struct str text) {
    return str_is(text, "words")     ? V2_NON_FINITE_WORDS
           : str_is(text, "null")    ? V2_NON_FINITE_NULL
           : str_is(text, "strings") ? V2_NON_FINITE_STRINGS
                                     : V2_NON_FINITE_DEFAULT;
}

/* Returns: the text with a comma, at most 12 characters. */
static struct str non_finite_text(double number, enum v2_non_finite non_finite) {
    if (non_finite == V2_NON_FINITE_NULL) {
        return STR("null,");
    }
    return isnan(number) ? STR("\"NaN\",")
           : number > 0  ? STR("\"Infinity\",")
                         : STR("\"-Infinity\",");
}

static double load_double(const unsigned char *data) {
    double value;
    memcpy(&value, data, sizeof(value));
    return value;
}

/* As v2_data_print_doubles, with non_finite_text. */
static void print_doubles_replacing(struct buf *out, const unsigned char *data, size_t n,
                                    enum v2_non_finite non_finite) {
    for (size_t i = 0; i < n && !out->failed;) {
        size_t finite = 0;
        while (i + finite < n && isfinite(load_double(data + (i + finite) * sizeof(double)))) {
            finite++;
        }
        v2_data_print_doubles(out, data + i * sizeof(double), finite);
        i += finite;
        if (i < n) {
            buf_add_str(out, non_finite_text(load_double(data + i * sizeof(double)), non_finite));
            i++;
        }
    }
}

/* ---- runs of elements ------------------------------------------------------------------------ */

/* Finds the next run of contiguous elements. Returns: false when no whole element is left. */
static bool next_run(struct element_print *print) {
    const struct tensor *tensor = print->tensor;
    size_t have = 0; /* bytes of an element that straddles pieces */
    for (; print->piece < tensor->n_pieces; print->piece++, print->at = 0) {
        const struct piece *piece = &tensor->pieces[print->piece];
        size_t left = piece->n_bytes - print->at;
        if (left == 0) {
            continue;
        }
        const unsigned char *data = (const unsigned char *)piece->data + print->at;
        if (have == 0 && left >= print->size) {
            print->data = data;
            print->n = left / print->size;
            print->at += print->n * print->size;
            return true;
        }
        size_t want = print->size - have;
        size_t n_bytes = left < want ? left : want;
        memcpy(print->straddling + have, data, n_bytes);
        have += n_bytes;
        print->at += n_bytes;
        if (have == print->size) {
            print->data = print->straddling;
            print->n = 1;
            return true;
        }
    }
    return false;
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum {
    RUN_CHUNK = 1024,                  /* elements reserved in the buffer at once */
    ELEMENT_BYTES = FLOAT_PRINT_BYTES, /* longest text of an element, with its comma */
};

static float load_float(const unsigned char *data, enum datatype datatype) {
    uint16_t half;
    float value;
    if (datatype == DT_FP32) {
        memcpy(&value, data, sizeof(value));
        return value;
    }
    memcpy(&half, data, sizeof(half));
    return datatype == DT_FP16 ? half_to_float(half) : bfloat_to_float(half);
}

static int64_t load_signed(const unsigned char *data, size_t size) {
    uint64_t bits = 0;
    memcpy(&bits, data, size);
    unsigned shift = (unsigned)(64 - 8 * size);
    return (int64_t)(bits << shift) >> shift;
}

static uint64_t load_unsigned(const unsigned char *data, size_t size) {
    uint64_t bits = 0;
    memcpy(&bits, data, size);
    return bits;
}

/* Prints one element, at most 23 characters. Returns: characters written. */
static inline unsigned print_element(char *out, const unsigned char *data, enum datatype datatype,
                                     size_t size) {
    switch (datatype) {
    case DT_FP16:
    case DT_BF16:
    case DT_FP32:
        return float_print(out, load_float(data, datatype));
    case DT_UINT8:
    case DT_UINT16:
    case DT_UINT32:
    case DT_UINT64:
        return num_print_u64(out, load_unsigned(data, size));
    case DT_INT8:
    case DT_INT16:
    case DT_INT32:
    case DT_INT64:
        return num_print_i64(out, load_signed(data, size));
    case DT_BOOL:
        memcpy(out, *data != 0 ? "true" : "false", 5);
        return *data != 0 ? 4 : 5;
    case DT_FP64:
    case DT_BYTES:
    case DT_INVALID:
    case DT_COUNT_:
        break;
    }
    assert(false); /* the callers print FP64 and BYTES */
    return 0;
}

/* Prints `n` elements at `data`, each followed by a comma. */
static void print_run(struct buf *out, const unsigned char *data, size_t n, enum datatype datatype,
                      size_t size) {
    while (n > 0 && !out->failed) {
        size_t chunk = n < RUN_CHUNK ? n : RUN_CHUNK;
        char *to = buf_reserve(out, chunk * ELEMENT_BYTES);
        char *start = to;
        for (size_t i = 0; to && i < chunk; i++) {
            to += print_element(to, data + i * size, datatype, size);
            *to++ = ',';
        }
        buf_advance(out, (size_t)(to - start));
        data += chunk * size;
        n -= chunk;
    }
}

/* As print_run, for FP16, BF16 and FP32, with non_finite_text. */
static void print_floats_replacing(struct buf *out, const struct element_print *print, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float value = load_float(print->data + i * print->size, print->tensor->datatype);
        if (!isfinite(value)) {
            buf_add_str(out, non_finite_text((double)value, print->non_finite));
            continue;
        }
        char *to = buf_reserve(out, ELEMENT_BYTES);
        if (!to) {
            return;
        }
        unsigned len = float_print(to, value);
        to[len] = ',';
        buf_advance(out, len + 1);
    }
}

/* Printed between two looks at whether the request was cancelled: some 5 ms on a slow core. */
enum { CHECKED_ELEMENTS = 1 << 16 };

/* Prints `n` of the elements at print->data. */
static void print_some(const struct element_print *print, struct buf *out, size_t n) {
    enum datatype datatype = print->tensor->datatype;
    /* code of its own, because the usual one prints bare words */
    bool replaces =
        (print->non_finite == V2_NON_FINITE_NULL || print->non_finite == V2_NON_FINITE_STRINGS) &&
        datatype_is_float(datatype);
    if (datatype == DT_FP64 && replaces) {
        print_doubles_replacing(out, print->data, n, print->non_finite);
    } else if (replaces) {
        print_floats_replacing(out, print, n);
    } else if (datatype == DT_FP64) {
        v2_data_print_doubles(out, print->data, n);
    } else {
        print_run(out, print->data, n, datatype, print->size);
    }
}

static void print_numbers(struct element_print *print, struct buf *out, uint64_t n) {
    while (n > 0 && !out->failed && (print->n > 0 || next_run(print))) {
        size_t count = n < print->n ? (size_t)n : print->n;
        count = count < CHECKED_ELEMENTS ? count : CHECKED_ELEMENTS;
        out->failed = arena_is_cancelled(out->arena);
        print_some(print, out, count);
        print->data += count * print->size;
        print->n -= count;
        n -= count;
    }
}

/* ---- strings --------------------------------------------------------------------------------- */

struct str element_gather(struct arena *arena, const struct tensor *tensor) {
    if (tensor->n_bytes == 0) {
        return str_make("", 0);
    }
    if (tensor->n_pieces == 1) {
        return str_make(tensor->pieces[0].data, tensor->pieces[0].n_bytes);
    }
    char *data = arena_alloc(arena, tensor->n_bytes);
    if (!data) {
        return str_make(NULL, 0);
    }
    return str_make(data, pieces_copy(tensor->pieces, tensor->n_pieces, data, tensor->n_bytes));
}

/* The framing of BYTES does not match the shape. */
static enum status wrong_framing(const struct element_print *print, struct error *err) {
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    struct str element, rest = print->all;
    uint64_t n = 0;
    while (bytes_next(&rest, &element)) {
        n++;
    }
    return error_set(err, ST_BAD_DATA,
                     "tensor %s: %" PRIu64 " whole BYTES elements and %zu bytes more don't fit "
                     "shape %s",
                     quote_name(print->tensor->name, name), n, rest.len,
                     shape_print(print->tensor->shape, shape));
}

static enum status print_strings(struct element_print *print, struct buf *out, uint64_t n,
                                 struct error *err) {
    struct str element;
    for (; n > 0; n--, print->n_strings++) {
        if (!bytes_next(&print->rest, &element)) {
            return wrong_framing(print, err);
        }
        size_t good = utf8_valid_prefix(element.ptr, element.len);
        if (good < element.len) {
            char name[QUOTED_NAME_BYTES];
            return error_set(err, ST_NOT_UTF8,
                             "tensor %s: element %" PRIu64 " is not UTF-8 (byte %zu of %zu), which "
                             "JSON can't carry%s",
                             quote_name(print->tensor->name, name), print->n_strings, good,
                             element.len, print->hint);
        }
        json_string_print(out, element);
        buf_add_char(out, ',');
        if (out->failed) {
            return error_no_memory(err, "the data as JSON");
        }
    }
    return ST_OK;
}

/* ---- any datatype ---------------------------------------------------------------------------- */

enum status element_print_start(struct element_print *print, struct arena *arena,
                                const struct tensor *tensor, const char *hint, struct error *err) {
    *print = (struct element_print){
        .tensor = tensor, .hint = hint, .size = datatype_size(tensor->datatype)};
    assert(print->size <= sizeof(print->straddling));
    if (tensor->datatype == DT_BYTES) {
        print->all = element_gather(arena, tensor);
        print->rest = print->all;
        return print->all.ptr ? ST_OK : error_no_memory(err, "the data as JSON");
    }
    return v2_tensor_check_size("tensor", tensor, err);
}

enum status element_print_next(struct element_print *print, struct buf *out, uint64_t n,
                               struct error *err) {
    if (print->tensor->datatype == DT_BYTES) {
        return print_strings(print, out, n, err);
    }
    print_numbers(print, out, n);
    return ST_OK;
}

enum status element_print_finish(const struct element_print *print, struct error *err) {
    /* element_print_start has checked the size of other datatypes. */
    return print->rest.len == 0 ? ST_OK : wrong_framing(print, err);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static const char advice[] = "; the parameter \"binary_data\": true asks for it as bytes";

enum status v2_data_print(struct buf *out, const struct tensor *tensor,
                          enum v2_non_finite non_finite, struct error *err) {
    struct element_print print;
    uint64_t n;
    enum status status = element_print_start(&print, out->arena, tensor, advice, err);
    if (status != ST_OK) {
        return status;
    }
    print.non_finite = non_finite;
    if (!shape_elements(tensor->shape, &n)) {
        n = UINT64_MAX; /* BYTES of an impossible shape: no tensor has as many */
    }
    buf_add_char(out, '[');
    size_t start = out->len;
    status = element_print_next(&print, out, n, err);
    if (status == ST_OK) {
        status = element_print_finish(&print, err);
    }
    if (status != ST_OK) {
        return status;
    }
    if (!out->failed && out->len > start) {
        out->data[out->len - 1] = ']'; /* replaces the last comma */
    } else {
        buf_add_char(out, ']');
    }
    return out->failed ? error_no_memory(err, "the data as JSON") : ST_OK;
}
