/* Overflow-checked arithmetic for sizes. Each returns false instead of wrapping round. */
#ifndef SLUICE_CORE_BASE_CHECKED_H
#define SLUICE_CORE_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool checked_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool checked_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* The smallest multiple of `alignment`, a power of two, that is at least `n`; n + alignment - 1
 * must not overflow. */
static inline size_t size_round_up(size_t n, size_t alignment) {
    return (n + alignment - 1) & ~(alignment - 1);
}
static inline bool checked_round_up(size_t n, size_t alignment, size_t *out) {
    *out = size_round_up(n, alignment);
    return *out >= n;
}

#endif
