/* Sixteen bytes at once, in the compilers' portable vectors: comparing two of them gives 0xff in
 * the lanes where it holds, and these say in which lanes that is, or whether in any. */
#ifndef SLUICE_CORE_BASE_LANES_H
#define SLUICE_CORE_BASE_LANES_H

#include <stdbool.h>
#include <stdint.h>

enum { LANES = 16 };

typedef signed char lanes_bytes __attribute__((vector_size(LANES)));
typedef uint64_t lanes_halves __attribute__((vector_size(LANES)));

/* A bit for each lane, the first lane's lowest. */
static inline unsigned lanes_bits(lanes_bytes which) {
#ifdef __SSE2__
    typedef char bytes __attribute__((vector_size(LANES)));
    return (unsigned)__builtin_ia32_pmovmskb128((bytes)which);
#else
    lanes_halves both =
        (lanes_halves)which & (lanes_halves){0x8040201008040201u, 0x8040201008040201u};
    uint64_t low = both[0] * 0x0101010101010101u >> 56;
    uint64_t high = both[1] * 0x0101010101010101u >> 56;
    return (unsigned)(low | high << 8);
#endif
}

static inline bool lanes_any(lanes_bytes which) {
#ifdef __SSE2__
    return lanes_bits(which) != 0;
#else
    lanes_halves both = (lanes_halves)which;
    return (both[0] | both[1]) != 0;
#endif
}

#endif
