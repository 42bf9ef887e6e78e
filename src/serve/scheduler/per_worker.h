/* Per-worker data of an object such as a model version: a hash table by the worker's address,
 * without a lock. Only a worker adds and finds its own entry; any thread may iterate. Entries are
 * freed with the object. */
#ifndef SLUICE_SERVE_SCHEDULER_PER_WORKER_H
#define SLUICE_SERVE_SCHEDULER_PER_WORKER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct worker;

enum { PER_WORKER_SLOT_BITS = 6, PER_WORKER_SLOTS = 1 << PER_WORKER_SLOT_BITS };

/* First member of an entry. */
struct per_worker {
    const struct worker *worker;
    struct per_worker *next; /* in the same slot */
};

/* Zeroed memory is an empty table. */
struct per_worker_table {
    _Atomic(struct per_worker *) slots[PER_WORKER_SLOTS];
};

static inline _Atomic(struct per_worker *) *per_worker_slot(struct per_worker_table *table,
                                                            const struct worker *worker) {
    uint64_t hash = (uint64_t)(uintptr_t)worker * UINT64_C(0x9e3779b97f4a7c15);
    return &table->slots[hash >> (64 - PER_WORKER_SLOT_BITS)];
}

/* Returns: the worker's own entry; NULL: none yet. Thread: the worker's. */
static inline struct per_worker *per_worker_find(struct per_worker_table *table,
                                                 const struct worker *worker) {
    struct per_worker *entry =
        atomic_load_explicit(per_worker_slot(table, worker), memory_order_acquire);
    while (entry && entry->worker != worker) {
        entry = entry->next;
    }
    return entry;
}

/* Publishes `entry`, which is fully initialized. Thread: the worker's. */
static inline void per_worker_add(struct per_worker_table *table, const struct worker *worker,
                                  struct per_worker *entry) {
    _Atomic(struct per_worker *) *slot = per_worker_slot(table, worker);
    entry->worker = worker;
    entry->next = atomic_load_explicit(slot, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(slot, &entry->next, entry, memory_order_acq_rel,
                                                  memory_order_acquire)) {
    }
}

/* The first entry of a slot, to iterate over all. Thread: any. */
static inline struct per_worker *per_worker_first(struct per_worker_table *table, size_t slot) {
    return atomic_load_explicit(&table->slots[slot], memory_order_acquire);
}

/* Iterates over the entries of all workers: `entry` is NULL and `*slot` 0 at first. Returns: NULL
 * after the last. Thread: any. */
static inline const struct per_worker *per_worker_next(struct per_worker_table *table,
                                                       const struct per_worker *entry,
                                                       size_t *slot) {
    entry = entry ? entry->next : NULL;
    while (!entry && *slot < PER_WORKER_SLOTS) {
        entry = per_worker_first(table, (*slot)++);
    }
    return entry;
}

/* Frees all entries, which are on the heap and no longer used. */
static inline void per_worker_table_fini(struct per_worker_table *table) {
    for (size_t i = 0; i < PER_WORKER_SLOTS; i++) {
        struct per_worker *entry = per_worker_first(table, i);
        while (entry) {
            struct per_worker *next = entry->next;
            free(entry);
            entry = next;
        }
        atomic_store(&table->slots[i], NULL);
    }
}

#endif
