/* Compression: the first byte selects the coding and the sizes of pieces. The rest is
 * decompressed with two splits, which must agree; then the rest is compressed and must
 * decompress to itself. The output is bounded by the buffer, whatever the input. */
#include "codec/http1/content_coding.h"
#include "core/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_OUT_BYTES = 1 << 18 };

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* Decompresses `text` in pieces of `step` bytes into buffers of `room` bytes. Returns: the final
 * status; the output is in `out`, cut at MAX_OUT_BYTES. */
static enum status decompress(enum http_coding coding, struct str text, size_t step,
                              size_t capacity, struct buf *out) {
    struct inflate *codec = inflate_new(coding);
    struct error err = {0};
    enum status status = ST_OK;
    check(codec != NULL);
    for (size_t at = 0; status == ST_OK && at < text.len && out->len < MAX_OUT_BYTES; at += step) {
        size_t n = text.len - at < step ? text.len - at : step, n_out;
        struct str in = str_make(text.ptr + at, n);
        do {
            char *to = buf_reserve(out, capacity);
            check(to != NULL);
            status = inflate_step(codec, &in, to, capacity, &n_out, &err);
            check(n_out <= capacity);
            buf_advance(out, n_out);
        } while (status == ST_OK && (n_out == capacity || in.len > 0) && out->len < MAX_OUT_BYTES);
    }
    if (status == ST_OK && out->len < MAX_OUT_BYTES) {
        status = inflate_finish(codec, &err);
    }
    check(status == ST_OK || err.text[0] != '\0');
    inflate_free(codec);
    return status;
}

static struct str compress(struct arena *arena, enum http_coding coding, struct str text,
                           size_t capacity) {
    struct deflate *codec = deflate_new(coding, 1);
    struct buf out;
    bool done = false;
    check(codec != NULL);
    buf_init(&out, arena, 64);
    size_t bound = deflate_bound(codec, text.len);
    while (!done) {
        size_t n_out;
        char *to = buf_reserve(&out, capacity);
        check(to != NULL);
        done = deflate_step(codec, &text, true, to, capacity, &n_out);
        check(n_out <= capacity);
        buf_advance(&out, n_out);
    }
    check(out.len <= bound);
    deflate_free(codec);
    return buf_str(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    enum http_coding coding = (data[0] & 1) != 0 ? HTTP_GZIP : HTTP_DEFLATE;
    size_t step = (data[0] >> 1 & 15) + 1, capacity = (size_t)(data[0] >> 5) * 37 + 1;
    struct str text = str_make((const char *)data + 1, size - 1);
    struct arena *arena = arena_new(NULL, 0);
    struct buf whole, pieces, back;
    buf_init(&whole, arena, 1);
    buf_init(&pieces, arena, 1);
    buf_init(&back, arena, 1);
    enum status first = decompress(coding, text, size, 4096, &whole);
    enum status second = decompress(coding, text, step, capacity, &pieces);
    if (whole.len < MAX_OUT_BYTES && pieces.len < MAX_OUT_BYTES) {
        check(first == second);
        check(first != ST_OK || str_eq(buf_str(&whole), buf_str(&pieces)));
    }
    struct str packed = compress(arena, coding, text, capacity);
    check(decompress(coding, packed, step, capacity, &back) == ST_OK);
    check(str_eq(buf_str(&back), text));
    arena_free(arena);
    return 0;
}
