/* Doubles through yyjson's writer: it prints the shortest text that parses to the same bits, but
 * only whole documents, so some dozens at a time become an array of its kind of value. */
#include "codec/kserve/data_print_double.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <yyjson.h>

enum {
    CHUNK = 64,
    /* The writer starts with 18 bytes a value and grows by half until 25 each fit, in a pool that
     * may have to hold both blocks. */
    POOL_BYTES = 4096,
};

/* Returns: false when out of memory. */
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
    buf_add(out, text + 1, len - 2); /* without its brackets */
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
