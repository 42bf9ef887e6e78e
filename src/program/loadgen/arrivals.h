/* When does the next request of an open loop begin? At times that are fixed before the first one
 * leaves and do not wait for the server, so that a slow answer delays no request that should have
 * been sent meanwhile, or at least is charged for it. It refuses to know a clock: it is told the
 * time. */
#ifndef SLUICE_PROGRAM_LOADGEN_ARRIVALS_H
#define SLUICE_PROGRAM_LOADGEN_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/prng.h"

enum bench_arrival {
    BENCH_ARRIVAL_CONSTANT, /* equal distances */
    BENCH_ARRIVAL_POISSON,  /* as many callers who know nothing of each other make them */
};

struct bench_arrivals {
    uint64_t start_ns;
    double interval_ns; /* the mean distance */
    double at_ns;       /* of the next one, from the start; no rounding adds up */
    enum bench_arrival arrival;
    struct prng random;
};

/* `rate` requests a second (> 0), the first at the start. */
void bench_arrivals_init(struct bench_arrivals *arrivals, double rate, enum bench_arrival arrival,
                         uint64_t seed, uint64_t start_ns);
/* When the next one is due. */
uint64_t bench_arrivals_next_ns(const struct bench_arrivals *arrivals);
/* Takes the next one if it is due by `now_ns`: *due_ns is when it was. */
bool bench_arrivals_pop_due(struct bench_arrivals *arrivals, uint64_t now_ns, uint64_t *due_ns);

#endif
