/* Bytes being written: a growable block in an arena. A failed append is remembered (`failed`), so
 * that a writer of many pieces checks once at the end; what was written stays valid. */
#ifndef SLUICE_CORE_BASE_BUF_H
#define SLUICE_CORE_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/str.h"

struct buf {
    struct arena *arena; /* where it grows */
    char *data;
    size_t len;
    size_t cap;
    bool failed; /* an append did not fit in memory; appends since are dropped */
};

/* Starts empty with room for `n_bytes` (0: none yet). */
void buf_init(struct buf *buf, struct arena *arena, size_t n_bytes);
char *buf_reserve_more(struct buf *buf, size_t n_bytes);
/* Makes room for `n_bytes` more and returns where they go; the caller writes at most that many and
 * then calls buf_advance. Returns: NULL when out of memory (and `failed` is set). */
static inline char *buf_reserve(struct buf *buf, size_t n_bytes) {
    bool has_room = buf->data && !buf->failed && n_bytes <= buf->cap - buf->len;
    return has_room ? buf->data + buf->len : buf_reserve_more(buf, n_bytes);
}
static inline void buf_advance(struct buf *buf, size_t n_bytes) {
    buf->len += n_bytes;
}
void buf_add(struct buf *buf, const void *data, size_t n_bytes);
void buf_add_str(struct buf *buf, struct str text);
void buf_add_char(struct buf *buf, char c);
void buf_add_u64(struct buf *buf, uint64_t value);
void buf_add_i64(struct buf *buf, int64_t value);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends `text` (valid UTF-8) as a JSON string with its quotes: escapes quote, backslash and
 * control characters. */
void buf_add_json_string(struct buf *buf, struct str text);
static inline struct str buf_str(const struct buf *buf) {
    return str_make(buf->data, buf->len);
}

#endif
