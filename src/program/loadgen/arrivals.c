/* The schedule of an open loop. */
#include "program/loadgen/arrivals.h"

#include <math.h>

void bench_arrivals_init(struct bench_arrivals *arrivals, double rate, enum bench_arrival arrival,
                         uint64_t seed, uint64_t start_ns) {
    *arrivals = (struct bench_arrivals){.start_ns = start_ns,
                                        .interval_ns = 1e9 / rate,
                                        .arrival = arrival,
                                        .random = {.state = seed}};
}

uint64_t bench_arrivals_next_ns(const struct bench_arrivals *arrivals) {
    return arrivals->start_ns + (uint64_t)arrivals->at_ns;
}

bool bench_arrivals_pop_due(struct bench_arrivals *arrivals, uint64_t now_ns, uint64_t *due_ns) {
    uint64_t next = bench_arrivals_next_ns(arrivals);
    if (next > now_ns) {
        return false;
    }
    *due_ns = next;
    arrivals->at_ns += arrivals->arrival == BENCH_ARRIVAL_POISSON
                           ? -log(1 - prng_double(&arrivals->random)) * arrivals->interval_ns
                           : arrivals->interval_ns;
    return true;
}
