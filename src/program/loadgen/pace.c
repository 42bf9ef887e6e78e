/* The timetable of an open loop. */
#include "program/loadgen/pace.h"

#include <math.h>

void bench_pace_init(struct bench_pace *pace, double rate, enum bench_arrival arrival,
                     uint64_t seed, uint64_t start_ns) {
    *pace = (struct bench_pace){.start_ns = start_ns,
                                .interval_ns = 1e9 / rate,
                                .arrival = arrival,
                                .random = {.state = seed}};
}

uint64_t bench_pace_next_ns(const struct bench_pace *pace) {
    return pace->start_ns + (uint64_t)pace->at_ns;
}

bool bench_pace_take(struct bench_pace *pace, uint64_t now_ns, uint64_t *due_ns) {
    uint64_t next = bench_pace_next_ns(pace);
    if (next > now_ns) {
        return false;
    }
    *due_ns = next;
    pace->at_ns += pace->arrival == BENCH_ARRIVAL_POISSON
                       ? -log(1 - dice_unit(&pace->random)) * pace->interval_ns
                       : pace->interval_ns;
    return true;
}
