/* What the runs have in common: a pool with a table of prefixes and a reader, requests that wait in
 * its queue, and times in their order.
 *
 * Thread: one at a time. Each ends the program when something fails. */
#ifndef SLUICE_BENCH_SIMULATE_POOL_H
#define SLUICE_BENCH_SIMULATE_POOL_H

#include "pick/pool/flow/wait.h"
#include "pick/pool/pool.h"

/* Ends the program unless it is ST_OK. */
void sim_check(enum status st, const struct error *err);

/* `spec` is consumed. `prefix_bytes`: of the table of prefixes; `seed`: of the reader. */
void sim_pool_open(struct pool_spec *spec, size_t prefix_bytes, uint64_t seed, struct pool **pool,
                   struct pool_reader **reader);

/* A wakeup of which the notified requests are taken after each event. */
void sim_wakeup_init(struct pool_wakeup *wakeup);

void sim_sort_times(uint64_t *times, uint32_t n);

#endif
