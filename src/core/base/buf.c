/* Appending to a block that grows by doubling. */
#include "core/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

enum { BUF_FIRST_BYTES = 128 };

void buf_init(struct buf *buf, struct arena *arena, size_t n_bytes) {
    *buf = (struct buf){.arena = arena};
    if (n_bytes > 0) {
        buf_reserve(buf, n_bytes);
    }
}

/* Near the limit of the arena doubling may fail. Exact steps are the last resort: a copy for each
 * piece that is appended. `*cap` gets the new size. Returns: NULL when out of memory. */
__attribute__((cold, noinline)) static char *grow_less(const struct buf *buf, size_t wanted,
                                                       size_t *cap) {
    char *data = NULL;
    for (size_t extra = buf->cap / 8; !data && *cap > wanted; extra /= 8) {
        size_t room = SIZE_MAX - wanted;
        *cap = wanted + (extra < room ? extra : room);
        data = arena_realloc(buf->arena, buf->data, buf->cap, *cap);
    }
    return data;
}

static bool buf_grow(struct buf *buf, size_t wanted) {
    size_t cap = buf->cap <= SIZE_MAX / 2 ? buf->cap * 2 : wanted;
    if (cap < wanted) {
        cap = wanted < BUF_FIRST_BYTES ? BUF_FIRST_BYTES : wanted;
    }
    char *data = buf->data ? arena_realloc(buf->arena, buf->data, buf->cap, cap)
                           : arena_alloc(buf->arena, cap);
    if (!data) {
        data = grow_less(buf, wanted, &cap);
    }
    if (!data) {
        return false;
    }
    buf->data = data;
    buf->cap = cap;
    return true;
}

char *buf_reserve_more(struct buf *buf, size_t n_bytes) {
    size_t wanted;
    if (buf->failed) {
        return NULL;
    }
    if (!checked_add(buf->len, n_bytes, &wanted) || !buf_grow(buf, wanted)) {
        buf->failed = true;
        return NULL;
    }
    return buf->data + buf->len;
}

void buf_add(struct buf *buf, const void *data, size_t n_bytes) {
    char *to = n_bytes > 0 ? buf_reserve(buf, n_bytes) : NULL;
    if (to) {
        memcpy(to, data, n_bytes);
        buf->len += n_bytes;
    }
}

void buf_add_str(struct buf *buf, struct str text) {
    buf_add(buf, text.ptr, text.len);
}

void buf_add_char(struct buf *buf, char c) {
    buf_add(buf, &c, 1);
}

void buf_add_printable(struct buf *buf, struct str text) {
    for (size_t at = 0; at < text.len;) {
        size_t n = utf8_char_len(text.ptr + at, text.len - at);
        bool plain = n > 0 && !utf8_is_control(text.ptr + at, n);
        buf_add_str(buf, plain ? str_make(text.ptr + at, n) : STR("?"));
        at += n > 0 ? n : 1;
    }
}

void buf_add_u64(struct buf *buf, uint64_t value) {
    char *to = buf_reserve(buf, 20);
    if (to) {
        buf->len += num_print_u64(to, value);
    }
}

void buf_add_i64(struct buf *buf, int64_t value) {
    char *to = buf_reserve(buf, 20);
    if (to) {
        buf->len += num_print_i64(to, value);
    }
}

void buf_printf(struct buf *buf, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t space = buf->failed ? 0 : buf->cap - buf->len;
    int n = vsnprintf(space > 0 ? buf->data + buf->len : NULL, space, format, args);
    if (n >= 0 && (size_t)n >= space) { /* one more for the NUL that vsnprintf writes */
        char *to = buf_reserve(buf, (size_t)n + 1);
        if (to) {
            vsnprintf(to, (size_t)n + 1, format, again);
        }
    }
    if (n >= 0 && !buf->failed) {
        buf->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}
