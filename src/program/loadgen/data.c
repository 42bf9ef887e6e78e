/* Data that is made up, element by element. */
#include "program/loadgen/data.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/tensor/bytes.h"
#include "core/tensor/half.h"

enum { MAX_INTEGER = 100, N_LETTERS = 26 };

static void put_integer(char *at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        at[i] = (char)(value >> (8 * i));
    }
}

/* One element of a fixed size. */
static void put_random(char *at, enum datatype datatype, struct prng *random) {
    size_t size = datatype_size(datatype);
    double unit = prng_double(random);
    if (datatype == DT_FP32) {
        float value = (float)unit;
        memcpy(at, &value, sizeof(value));
    } else if (datatype == DT_FP64) {
        memcpy(at, &unit, sizeof(unit));
    } else if (datatype == DT_FP16) {
        put_integer(at, size, half_from_double(unit));
    } else if (datatype == DT_BF16) {
        put_integer(at, size, bfloat_from_double(unit));
    } else {
        put_integer(at, size, (uint64_t)(unit * (datatype == DT_BOOL ? 2 : MAX_INTEGER + 1)));
    }
}

static void put_text(char *at, uint64_t n_letters, struct prng *random) {
    bytes_encode_length(at, (uint32_t)n_letters);
    for (uint64_t i = 0; i < n_letters; i++) {
        at[4 + i] = (char)('a' + prng_next(random) % N_LETTERS);
    }
}

enum status bench_data_generate(struct arena *arena, const struct bench_data_options *fill,
                                enum datatype datatype, struct shape shape, struct str *out,
                                struct error *err) {
    char text[SHAPE_TEXT_BYTES];
    uint64_t n;
    size_t n_bytes, size = datatype_size(datatype);
    uint64_t n_letters = fill->zeros ? 0 : fill->text_size;
    if (datatype == DT_BYTES) {
        size = 4 + (size_t)n_letters;
    }
    if (!shape_elements(shape, &n) || !checked_mul(n, size, &n_bytes)) {
        return error_set(err, ST_BAD_SHAPE, "the shape %s has too many elements",
                         shape_print(shape, text));
    }
    char *bytes = arena_alloc(arena, n_bytes);
    if (!bytes) {
        return error_set(err, ST_NO_MEMORY, "no memory for %zu bytes of shape %s", n_bytes,
                         shape_print(shape, text));
    }
    *out = str_make(bytes, n_bytes);
    if (fill->zeros) {
        memset(bytes, 0, n_bytes);
        return ST_OK;
    }
    for (size_t at = 0; at < n_bytes; at += size) {
        if (datatype == DT_BYTES) {
            put_text(bytes + at, n_letters, fill->random);
        } else {
            put_random(bytes + at, datatype, fill->random);
        }
    }
    return ST_OK;
}
