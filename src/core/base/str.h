/* A view of bytes: pointer and length, not NUL-terminated unless its maker documents it. The
 * function that makes a view documents what it borrows from. Nothing here allocates, except
 * str_dup. */
#ifndef SLUICE_CORE_BASE_STR_H
#define SLUICE_CORE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/base/compiler.h"

struct str {
    const char *ptr;
    size_t len;
};

/* For printf's "%.*s" (texts over INT_MAX are cut). */
#define STR_ARG(s) ((int)((s).len > 0x7fffffff ? 0x7fffffff : (s).len)), ((s).ptr ? (s).ptr : "")
/* A view of a literal. */
#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})

static inline struct str str_make(const char *ptr, size_t len) {
    return (struct str){ptr, len};
}
static inline struct str str_of(const char *text) {
    return (struct str){text, text ? strlen(text) : 0};
}
static inline bool str_eq(struct str a, struct str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
static inline bool str_is(struct str a, const char *text) {
    return str_eq(a, str_of(text));
}
/* Returns: below, at or above 0, as `a` is to `b`: by bytes, a prefix before a longer text. */
int str_compare(struct str a, struct str b);
/* str_eq_nocase for two texts of `n` bytes. */
bool str_eq_nocase_n(const char *a, const char *b, size_t n);
/* Ignores ASCII case only, as HTTP field names and tokens require. */
static inline bool str_eq_nocase(struct str a, struct str b) {
    return a.len == b.len && str_eq_nocase_n(a.ptr, b.ptr, a.len);
}
static inline bool str_starts_with(struct str s, struct str prefix) {
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}
static inline bool str_ends_with(struct str s, struct str suffix) {
    return s.len >= suffix.len &&
           (suffix.len == 0 || memcmp(s.ptr + (s.len - suffix.len), suffix.ptr, suffix.len) == 0);
}
/* Copies the bytes to `out`, ASCII's letters in lower case; `out` may be the text itself. */
void str_copy_lower(char *out, struct str text);
/* Removes spaces and tabs at both ends (HTTP's OWS). */
struct str str_trim(struct str s);
/* Cuts `rest` at the first `sep`. Returns: the text before it; `rest` becomes the text after it.
 * Without a `sep` returns all of it, and `rest` becomes a NULL pointer. */
struct str str_cut(struct str *rest, char sep);
/* A copy, followed by a NUL. Returns: NULL when out of memory. Owns: the caller, by free. */
char *str_dup(struct str s) SLUICE_MUST_USE;

#endif
