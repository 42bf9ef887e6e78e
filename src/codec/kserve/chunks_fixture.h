/* A body cut into chunks, for fuzzers of incremental decoders. */
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

/* Cuts the next chunk off `rest`; its size follows from `choice`, which changes with each. Owns:
 * the caller frees the chunk, an allocation of exactly its size. */
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
