/* The product's pool, as all runs open it. */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>

void sim_check(enum status st, const struct error *err) {
    if (st != ST_OK) {
        fprintf(stderr, "simulate: %s\n", err->text);
        exit(1);
    }
}

void sim_pool_open(struct pool_spec *spec, size_t prefix_bytes, uint64_t seed, struct pool **pool,
                   struct pool_reader **reader) {
    struct prefix_table *prefixes;
    struct error err;
    sim_check(pool_new(pool, &err), &err);
    sim_check(prefix_table_new(prefix_bytes, seed, &prefixes, &err), &err);
    pool_attach_prefix_table(*pool, prefixes);
    prefix_table_unref(prefixes);
    sim_check(pool_update(*pool, &spec, &err), &err);
    sim_check(pool_reader_new(*pool, seed, reader, &err), &err);
}

static void ignore_wakeup(void *user) {
    (void)user;
}

void sim_wakeup_init(struct pool_wakeup *wakeup) {
    pool_wakeup_init(wakeup, ignore_wakeup, NULL);
}

static int compare_times(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

void sim_sort_times(uint64_t *times, uint32_t n) {
    qsort(times, n, sizeof(*times), compare_times);
}
