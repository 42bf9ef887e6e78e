/* Tensor data as JSON. Elements are taken from their pieces by runs, so that the loops over them
 * see memory that is contiguous; one that straddles two pieces is a run of its own. It refuses to
 * print what would not be JSON (but NaN and infinities, which have no other text that clients
 * read). */
#include "wire/v2_print.h"

#include <assert.h>
#include <inttypes.h>

#include "base/num.h"
#include "base/utf8.h"
#include "tensor/bytes.h"
#include "tensor/half.h"
#include "wire/float_print.h"
#include "wire/v2_json.h"
#include "wire/v2_print_double.h"

/* ---- runs of elements ------------------------------------------------------------------------ */

struct run {
    const unsigned char *data; /* at any alignment */
    size_t n;                  /* elements */
};

struct runs {
    const struct tensor *tensor;
    size_t size;  /* of an element */
    size_t piece; /* the next byte is in this piece, */
    size_t at;    /* here */
    unsigned char straddling[8];
};

static bool runs_next(struct runs *runs, struct run *run) {
    const struct tensor *tensor = runs->tensor;
    size_t have = 0; /* bytes of an element that straddles */
    for (; runs->piece < tensor->n_pieces; runs->piece++, runs->at = 0) {
        const struct piece *piece = &tensor->pieces[runs->piece];
        size_t left = piece->n_bytes - runs->at;
        if (left == 0) {
            continue;
        }
        const unsigned char *data = (const unsigned char *)piece->data + runs->at;
        if (have == 0 && left >= runs->size) {
            *run = (struct run){data, left / runs->size};
            runs->at += run->n * runs->size;
            return true;
        }
        size_t want = runs->size - have;
        size_t n_bytes = left < want ? left : want;
        memcpy(runs->straddling + have, data, n_bytes);
        have += n_bytes;
        runs->at += n_bytes;
        if (have == runs->size) {
            *run = (struct run){runs->straddling, 1};
            return true;
        }
    }
    return false;
}

/* ---- elements -------------------------------------------------------------------------------- */

enum {
    RUN_CHUNK = 1024,                  /* elements for which room is made at once */
    ELEMENT_BYTES = FLOAT_PRINT_BYTES, /* the longest text of an element, with its comma */
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

/* Sign-extended, or zero-extended. */
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
    assert(false); /* these go other ways */
    return 0;
}

/* Prints `n` elements, each with a comma behind it. */
static void print_run(struct buf *out, struct run run, enum datatype datatype, size_t size) {
    while (run.n > 0 && !out->failed) {
        size_t n = run.n < RUN_CHUNK ? run.n : RUN_CHUNK;
        char *to = buf_reserve(out, n * ELEMENT_BYTES);
        char *start = to;
        for (size_t i = 0; to && i < n; i++) {
            to += print_element(to, run.data + i * size, datatype, size);
            *to++ = ',';
        }
        buf_advance(out, (size_t)(to - start));
        run.data += n * size;
        run.n -= n;
    }
}

static void print_numbers(struct buf *out, const struct tensor *tensor) {
    size_t size = datatype_size(tensor->datatype);
    struct runs runs = {.tensor = tensor, .size = size};
    struct run run;
    assert(size <= sizeof(runs.straddling));
    while (runs_next(&runs, &run)) {
        if (tensor->datatype == DT_FP64) {
            v2_print_doubles(out, run.data, run.n);
        } else {
            print_run(out, run, tensor->datatype, size);
        }
    }
}

/* ---- strings --------------------------------------------------------------------------------- */

/* One view of all bytes: the only piece, or a copy. */
static struct str gather(struct arena *arena, const struct tensor *tensor) {
    if (tensor->n_pieces <= 1) {
        return tensor->n_pieces == 0 ? str_make("", 0)
                                     : str_make(tensor->pieces[0].data, tensor->pieces[0].n_bytes);
    }
    char *data = arena_alloc(arena, tensor->n_bytes);
    size_t at = 0;
    for (size_t i = 0; data && i < tensor->n_pieces; i++) {
        if (tensor->pieces[i].n_bytes > 0) {
            memcpy(data + at, tensor->pieces[i].data, tensor->pieces[i].n_bytes);
        }
        at += tensor->pieces[i].n_bytes;
    }
    return str_make(data, at);
}

static enum status print_strings(struct buf *out, const struct tensor *tensor, struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES];
    struct str element, rest = gather(out->arena, tensor);
    uint64_t n_elements, n = 0;
    if (!rest.ptr) {
        out->failed = true;
        return ST_OK;
    }
    bool countable = shape_elements(tensor->shape, &n_elements);
    for (; bytes_next(&rest, &element); n++) {
        size_t good = utf8_valid_prefix(element.ptr, element.len);
        if (good < element.len) {
            return error_set(err, ST_BAD_DATA,
                             "tensor %s: element %" PRIu64 " is not UTF-8 (byte %zu of %zu), which "
                             "JSON can't carry; the parameter \"binary_data\": true asks for it "
                             "as bytes",
                             tensor_name_print(tensor->name, name), n, good, element.len);
        }
        buf_add_json_string(out, element);
        buf_add_char(out, ',');
    }
    if (rest.len > 0 || !countable || n != n_elements) {
        char shape[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_DATA,
                         "tensor %s: %" PRIu64 " whole BYTES elements and %zu bytes more don't "
                         "fit shape %s",
                         tensor_name_print(tensor->name, name), n, rest.len,
                         shape_print(tensor->shape, shape));
    }
    return ST_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum status v2_print_data(struct buf *out, const struct tensor *tensor, struct error *err) {
    enum status status = ST_OK;
    buf_add_char(out, '[');
    size_t start = out->len;
    if (tensor->datatype == DT_BYTES) {
        status = print_strings(out, tensor, err);
    } else {
        status = v2_json_check_size("tensor", tensor, err);
        if (status == ST_OK) {
            print_numbers(out, tensor);
        }
    }
    if (status != ST_OK) {
        return status;
    }
    if (!out->failed && out->len > start) {
        out->data[out->len - 1] = ']'; /* in place of the last comma */
    } else {
        buf_add_char(out, ']');
    }
    return out->failed ? error_set(err, ST_NO_MEMORY, "out of memory for the data as JSON") : ST_OK;
}
