/* Random numbers. random_fill gets unpredictable bytes from the system, for keys and seeds. struct
 * prng gives the same sequence for the same seed: for ties, weights, jitter and the inputs of a
 * load; not for secrets. */
#ifndef SLUICE_CORE_BASE_RANDOM_H
#define SLUICE_CORE_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills `out`; at most 256 bytes. Thread: any. */
void random_fill(void *out, size_t n_bytes);

struct prng {
    uint64_t state; /* starts as the seed */
};

/* SplitMix64: a counter whose bits are mixed. */
static inline uint64_t prng_next(struct prng *prng) {
    uint64_t z = prng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns: 0 to `n` - 1, all equally likely; `n` is above 0. It is the upper half of a product with
 * `n`; the few values of the lower half that would bias the result are drawn again (Lemire
 * 2019). */
static inline uint32_t prng_below(struct prng *prng, uint32_t n) {
    uint64_t product = (prng_next(prng) >> 32) * n;
    if ((uint32_t)product < n) {
        uint32_t biased = (0u - n) % n;
        while ((uint32_t)product < biased) {
            product = (prng_next(prng) >> 32) * n;
        }
    }
    return (uint32_t)(product >> 32);
}

/* Returns: a number from 0 (inclusive) to 1 (exclusive). */
static inline double prng_double(struct prng *prng) {
    return (double)(prng_next(prng) >> 11) * 0x1p-53;
}

/* Returns: 0 to `most`, such as the random part of a wait. */
static inline uint64_t prng_share(struct prng *prng, uint64_t most) {
    return (uint64_t)(prng_double(prng) * (double)most);
}

#endif
