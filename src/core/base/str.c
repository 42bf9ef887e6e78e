/* Comparing, trimming and cutting views. Case and space are ASCII's. */
#include "core/base/str.h"

#include <stdlib.h>

static unsigned char ascii_lower(char c) {
    unsigned char u = (unsigned char)c;
    return u >= 'A' && u <= 'Z' ? (unsigned char)(u + ('a' - 'A')) : u;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

int str_compare(struct str a, struct str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n > 0 ? memcmp(a.ptr, b.ptr, n) : 0;
    return order ? order : a.len < b.len ? -1 : a.len > b.len;
}

bool str_eq_nocase_n(const char *a, const char *b, size_t n) {
    if (n == 0 || memcmp(a, b, n) == 0) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (ascii_lower(a[i]) != ascii_lower(b[i])) {
            return false;
        }
    }
    return true;
}

void str_copy_lower(char *out, struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        out[i] = (char)ascii_lower(text.ptr[i]);
    }
}

struct str str_trim(struct str s) {
    while (s.len > 0 && is_space(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && is_space(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

struct str str_cut(struct str *rest, char sep) {
    struct str all = *rest;
    const char *at = all.len > 0 ? memchr(all.ptr, sep, all.len) : NULL;
    if (!at) {
        *rest = str_make(NULL, 0);
        return all;
    }
    size_t before = (size_t)(at - all.ptr);
    *rest = str_make(at + 1, all.len - before - 1);
    return str_make(all.ptr, before);
}

char *str_dup(struct str s) {
    char *copy = malloc(s.len + 1);
    if (copy) {
        if (s.len > 0) {
            memcpy(copy, s.ptr, s.len);
        }
        copy[s.len] = '\0';
    }
    return copy;
}
