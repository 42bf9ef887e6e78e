/* A body cut into parts, for fuzzers of what reads one in chunks. Nothing else includes this. */
#ifndef SLUICE_CODEC_KSERVE_CHUNKS_FIXTURE_H
#define SLUICE_CODEC_KSERVE_CHUNKS_FIXTURE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

static inline void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* The next part of what is left, by a number that changes with each; of its own size in memory,
 * which the caller frees. */
static inline struct str next_chunk(struct str *rest, uint32_t *choice) {
    *choice = *choice * 1103515245 + 12345;
    size_t n = (*choice >> 16) % 8 == 0 ? rest->len : 1 + (*choice >> 16) % 40;
    n = n < rest->len ? n : rest->len;
    char *part = malloc(n + (n == 0));
    memcpy(part, rest->ptr, n);
    *rest = str_make(rest->ptr + n, rest->len - n);
    return str_make(part, n);
}

#endif
