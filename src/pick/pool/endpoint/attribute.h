/* Attributes of endpoints: numbers beside the load that their metrics pages report, under names
 * that the configuration gives them, and of which plugins choose those that they read. Upstream
 * keeps the last value for ever; here a value expires as a load does.
 *
 * A snapshot has a cell for each attribute of each member. A cell is written under the pool's lock
 * (pool_set_attributes) and read without it: value and time may be of successive reports. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_ATTRIBUTE_H
#define SLUICE_PICK_POOL_ENDPOINT_ATTRIBUTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

enum { ATTRIBUTES_MAX = 16 }; /* that the plugins of a pool read */

struct attribute_key {
    struct str name;
    struct str producer; /* the type of plugin that sets it */
};

static inline bool attribute_key_equal(const struct attribute_key *a,
                                       const struct attribute_key *b) {
    return str_eq(a->name, b->name) && str_eq(a->producer, b->producer);
}

/* The values of one page, in the order of the pool's keys. Zeroed memory is an empty one. */
struct attribute_report {
    uint64_t until_ns; /* clock_now_ns; valid until then */
    uint32_t known;    /* a bit for each value that is set; no value is NaN */
    double values[ATTRIBUTES_MAX];
};

struct attribute_cell {
    _Atomic uint64_t until_ns; /* 0: no value */
    _Atomic double value;
};

static inline void attribute_cell_set(struct attribute_cell *cell, uint64_t until_ns,
                                      double value) {
    atomic_store_explicit(&cell->value, value, memory_order_relaxed);
    atomic_store_explicit(&cell->until_ns, until_ns, memory_order_relaxed);
}

/* Returns: false where there is no value, or an old one. */
static inline bool attribute_cell_get(const struct attribute_cell *cell, uint64_t now_ns,
                                      double *out) {
    *out = atomic_load_explicit(&cell->value, memory_order_relaxed);
    return atomic_load_explicit(&cell->until_ns, memory_order_relaxed) > now_ns;
}

#endif
