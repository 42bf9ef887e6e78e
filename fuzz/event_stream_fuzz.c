/* Server-sent events: the first byte selects a split. The bytes in two pieces have the same events
 * as the bytes at once, and no event has more bytes than its block. */
#include "codec/http1/event_stream.h"
#include "core/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* Appends the data of all events of `text`, each with its length before it. Of the text only the
 * first `n` bytes are there at first. */
static void take_all(struct arena *arena, struct str text, size_t n, struct buf *out) {
    size_t at = 0, n_searched = 0;
    while (at < text.len) {
        struct str event, rest = str_make(text.ptr + at, n - at);
        size_t n_block = event_stream_find(rest, &n_searched);
        check(n_block <= rest.len && n_searched <= rest.len);
        if (n_block == 0 && n == text.len) {
            return;
        }
        if (n_block == 0) {
            n = text.len;
            continue;
        }
        check(event_stream_data(arena, str_make(rest.ptr, n_block), &event));
        check(event.len < n_block);
        if (event.ptr) {
            buf_add_u64(out, event.len);
            buf_add_str(out, event);
        }
        at += n_block;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    struct arena *arena = arena_new(NULL, 0);
    struct str text = str_make((const char *)data + 1, size - 1);
    struct buf whole, split;
    buf_init(&whole, arena, 64);
    buf_init(&split, arena, 64);
    take_all(arena, text, text.len, &whole);
    take_all(arena, text, data[0] * text.len / 255, &split);
    check(whole.len == split.len && memcmp(whole.data, split.data, whole.len) == 0);
    arena_free(arena);
    return 0;
}
