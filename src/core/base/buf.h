/* A growable block of bytes in an arena. The first append that fails sets `failed`, and later ones
 * are dropped, so that a caller checks once after all appends; the bytes before it stay valid. */
#ifndef SLUICE_CORE_BASE_BUF_H
#define SLUICE_CORE_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/str.h"

struct buf {
    struct arena *arena; /* where the block is */
    char *data;
    size_t len;
    size_t cap;
    bool failed; /* out of memory: later appends are dropped */
};

/* Starts empty with a capacity of `n_bytes` (0: allocates nothing). */
void buf_init(struct buf *buf, struct arena *arena, size_t n_bytes);
/* The slow path of buf_reserve. */
char *buf_reserve_more(struct buf *buf, size_t n_bytes);
/* Reserves `n_bytes` for the caller to write to; buf_advance with at most as many must follow.
 * Returns: the address of the first; NULL when out of memory (and `failed` is set). */
static inline char *buf_reserve(struct buf *buf, size_t n_bytes) {
    bool fits = buf->data && !buf->failed && n_bytes <= buf->cap - buf->len;
    return fits ? buf->data + buf->len : buf_reserve_more(buf, n_bytes);
}
static inline void buf_advance(struct buf *buf, size_t n_bytes) {
    buf->len += n_bytes;
}
/* Append bytes, or numbers in decimal. */
void buf_add(struct buf *buf, const void *data, size_t n_bytes);
void buf_add_str(struct buf *buf, struct str text);
void buf_add_char(struct buf *buf, char c);
/* Appends text of a peer for a terminal: '?' in place of each control character, and of each byte
 * that is not UTF-8. */
void buf_add_printable(struct buf *buf, struct str text);
void buf_add_u64(struct buf *buf, uint64_t value);
void buf_add_i64(struct buf *buf, int64_t value);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline struct str buf_str(const struct buf *buf) {
    return str_make(buf->data, buf->len);
}

#endif
