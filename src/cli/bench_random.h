/* Numbers that look random and are the same for the same seed, for inputs and arrivals. Not for
 * secrets. */
#ifndef SLUICE_CLI_BENCH_RANDOM_H
#define SLUICE_CLI_BENCH_RANDOM_H

#include <stdint.h>

struct bench_random {
    uint64_t state; /* the seed, at first */
};

/* SplitMix64: a counter whose bits are mixed. */
static inline uint64_t bench_random_next(struct bench_random *random) {
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* From 0 (inclusive) to 1 (exclusive). */
static inline double bench_random_unit(struct bench_random *random) {
    return (double)(bench_random_next(random) >> 11) * 0x1p-53;
}

#endif
