/* Start times of requests in an open loop. They are fixed in advance and do not depend on the
 * server: a slow answer does not delay later requests, and if it does, their latency includes
 * the delay. The caller passes the time. */
#ifndef SLUICE_PROGRAM_LOADGEN_ARRIVALS_H
#define SLUICE_PROGRAM_LOADGEN_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/random.h"

enum bench_arrival {
    BENCH_ARRIVAL_CONSTANT, /* equal intervals */
    BENCH_ARRIVAL_POISSON,  /* random, as from many independent callers */
};

struct bench_arrivals {
    uint64_t start_ns;
    double interval_ns; /* mean interval */
    double at_ns;       /* start of the next request, relative to start_ns; a double, so that
                           rounding does not accumulate */
    enum bench_arrival arrival;
    struct prng random;
};

/* `rate` requests per second (> 0), the first at the start. */
void bench_arrivals_init(struct bench_arrivals *arrivals, double rate, enum bench_arrival arrival,
                         uint64_t seed, uint64_t start_ns);
/* Returns: the time of the next request. */
uint64_t bench_arrivals_next_ns(const struct bench_arrivals *arrivals);
/* Takes the next request if it is due by `now_ns`; *due_ns is its start time. */
bool bench_arrivals_pop_due(struct bench_arrivals *arrivals, uint64_t now_ns, uint64_t *due_ns);

#endif
