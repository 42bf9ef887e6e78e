/* What each worker has of something for itself, as of a model version, found by the worker's
 * address without a lock. Only a worker makes its own and only that worker looks for it; anybody
 * may walk over all. They go with what they are of. */
#ifndef SLUICE_SERVE_SCHEDULER_PER_WORKER_H
#define SLUICE_SERVE_SCHEDULER_PER_WORKER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct worker;

enum { PER_WORKER_SLOT_BITS = 6, PER_WORKER_SLOTS = 1 << PER_WORKER_SLOT_BITS };

/* Embedded in it, in front. */
struct per_worker {
    const struct worker *worker;
    struct per_worker *next; /* of the same slot */
};

/* Zeroed memory is an empty one. */
struct per_worker_table {
    _Atomic(struct per_worker *) slots[PER_WORKER_SLOTS];
};

static inline _Atomic(struct per_worker *) *per_worker_slot(struct per_worker_table *table,
                                                            const struct worker *worker) {
    uint64_t hash = (uint64_t)(uintptr_t)worker * UINT64_C(0x9e3779b97f4a7c15);
    return &table->slots[hash >> (64 - PER_WORKER_SLOT_BITS)];
}

/* Returns: the worker's own; NULL: it has none yet. Thread: the worker's. */
static inline struct per_worker *per_worker_find(struct per_worker_table *table,
                                                 const struct worker *worker) {
    struct per_worker *entry =
        atomic_load_explicit(per_worker_slot(table, worker), memory_order_acquire);
    while (entry && entry->worker != worker) {
        entry = entry->next;
    }
    return entry;
}

/* `one` is complete: others may see it from now on. Thread: the worker's. */
static inline void per_worker_add(struct per_worker_table *table, const struct worker *worker,
                                  struct per_worker *entry) {
    _Atomic(struct per_worker *) *slot = per_worker_slot(table, worker);
    entry->worker = worker;
    entry->next = atomic_load_explicit(slot, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(slot, &entry->next, entry, memory_order_acq_rel,
                                                  memory_order_acquire)) {
    }
}

/* The worker's own, which is made of `n_bytes` zeroed bytes where there is none yet; it begins with
 * a struct per_worker. Returns: NULL when out of memory. Thread: the worker's. */
struct per_worker *per_worker_get(struct per_worker_table *table, const struct worker *worker,
                                  size_t n_bytes);

/* Those of one slot, for a walk over all. Thread: any. */
static inline struct per_worker *per_worker_first(struct per_worker_table *table, size_t slot) {
    return atomic_load_explicit(&table->slots[slot], memory_order_acquire);
}

/* Gives all of them, which lie on the heap, back. Nobody uses them any more. */
void per_worker_table_fini(struct per_worker_table *table);

#endif
