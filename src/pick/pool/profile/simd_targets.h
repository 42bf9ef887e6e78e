/* For functions of loops under "#pragma omp simd": gcc compiles them twice, and on a processor with
 * AVX2 the one with eight numbers at a time runs. It has no fused multiplications and additions in
 * it, so both come to the same.
 *
 * Elsewhere there is one of each: clang 14 gives what chooses between two a global name even if the
 * function is static, and sanitizers must not look at what runs before they are there. */
#ifndef SLUICE_PICK_POOL_PROFILE_SIMD_TARGETS_H
#define SLUICE_PICK_POOL_PROFILE_SIMD_TARGETS_H

#include <stdint.h> /* which C library it is */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMD_TARGETS __attribute__((target_clones("avx2", "default")))
#else
#define SIMD_TARGETS
#endif

#endif
