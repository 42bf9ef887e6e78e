/* Operations on sixteen bytes at once, with the compilers' portable vectors: a comparison sets the
 * lanes where it holds to 0xff; the functions return which lanes are set, or whether any is. */
#ifndef SLUICE_CORE_BASE_SIMD_H
#define SLUICE_CORE_BASE_SIMD_H

#include <stdbool.h>
#include <stdint.h>

enum { SIMD_LANES = 16 };

typedef signed char simd_i8x16 __attribute__((vector_size(SIMD_LANES)));
typedef uint64_t simd_u64x2 __attribute__((vector_size(SIMD_LANES)));

/* Returns: a bit for each lane, the first lane's lowest. */
static inline unsigned simd_mask(simd_i8x16 which) {
#ifdef __SSE2__
    typedef char bytes __attribute__((vector_size(SIMD_LANES)));
    return (unsigned)__builtin_ia32_pmovmskb128((bytes)which);
#else
    simd_u64x2 both = (simd_u64x2)which & (simd_u64x2){0x8040201008040201u, 0x8040201008040201u};
    uint64_t low = both[0] * 0x0101010101010101u >> 56;
    uint64_t high = both[1] * 0x0101010101010101u >> 56;
    return (unsigned)(low | high << 8);
#endif
}

static inline bool simd_any(simd_i8x16 which) {
#ifdef __SSE2__
    return simd_mask(which) != 0;
#else
    simd_u64x2 both = (simd_u64x2)which;
    return (both[0] | both[1]) != 0;
#endif
}

/* On processors with AVX2 the same of 32 bytes, in functions of SIMD_WIDE alone. */
#ifdef __x86_64__
#define SIMD_WIDE __attribute__((target("avx2")))
enum { SIMD_WIDE_LANES = 2 * SIMD_LANES };

typedef signed char simd_i8x32 __attribute__((vector_size(SIMD_WIDE_LANES)));

static inline bool simd_has_wide(void) {
    return __builtin_cpu_supports("avx2");
}

SIMD_WIDE static inline unsigned simd_wide_mask(simd_i8x32 which) {
    typedef char bytes __attribute__((vector_size(SIMD_WIDE_LANES)));
    return (unsigned)__builtin_ia32_pmovmskb256((bytes)which);
}
#endif

#endif
