/* Doubles through yyjson's writer: it prints the shortest text that parses to the same bits, but
 * only whole documents, so some hundred values at a time become an array of its kind of value. */
#include "wire/v2_print_double.h"

#include <stdint.h>
#include <yyjson.h>

enum {
    CHUNK = 256,
    /* What the writer takes at once: its estimate of 18 bytes a value may have to grow, by
     * doubling. */
    WRITER_BYTES = CHUNK * 128 + 1024,
};

void v2_print_doubles(struct buf *out, const unsigned char *data, size_t n) {
    struct {
        yyjson_val values[1 + CHUNK];
        char memory[WRITER_BYTES];
    } *scratch = NULL;
    if (n > 0 && !out->failed) {
        scratch = arena_alloc(out->arena, sizeof(*scratch));
        out->failed = scratch == NULL;
    }
    while (n > 0 && !out->failed) {
        size_t count = n < CHUNK ? n : CHUNK, len = 0;
        scratch->values[0].tag = (uint64_t)count << YYJSON_TAG_BIT | YYJSON_TYPE_ARR;
        scratch->values[0].uni.ofs = (count + 1) * sizeof(yyjson_val);
        for (size_t i = 0; i < count; i++) {
            scratch->values[1 + i].tag = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL;
            memcpy(&scratch->values[1 + i].uni.f64, data + i * sizeof(double), sizeof(double));
        }
        yyjson_alc memory;
        yyjson_alc_pool_init(&memory, scratch->memory, sizeof(scratch->memory));
        const char *text = yyjson_val_write_opts(scratch->values, YYJSON_WRITE_ALLOW_INF_AND_NAN,
                                                 &memory, &len, NULL);
        if (!text) {
            out->failed = true;
            return;
        }
        buf_add(out, text + 1, len - 2); /* without its brackets */
        buf_add_char(out, ',');
        data += count * sizeof(double);
        n -= count;
    }
}
