/* What each worker has of something for itself, as of a model version, found by the worker's
 * address without a lock. Only a worker makes its own and only that worker looks for it; anybody
 * may walk over all. They go with what they are of. */
#ifndef SLUICE_SERVE_SCHEDULER_BY_WORKER_H
#define SLUICE_SERVE_SCHEDULER_BY_WORKER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct worker;

enum { BY_WORKER_SLOT_BITS = 6, BY_WORKER_SLOTS = 1 << BY_WORKER_SLOT_BITS };

/* Embedded in it, in front. */
struct by_worker {
    const struct worker *worker;
    struct by_worker *next; /* of the same slot */
};

/* Zeroed memory is an empty one. */
struct by_workers {
    _Atomic(struct by_worker *) slots[BY_WORKER_SLOTS];
};

static inline _Atomic(struct by_worker *) *by_worker_slot(struct by_workers *all,
                                                          const struct worker *worker) {
    uint64_t hash = (uint64_t)(uintptr_t)worker * UINT64_C(0x9e3779b97f4a7c15);
    return &all->slots[hash >> (64 - BY_WORKER_SLOT_BITS)];
}

/* Returns: the worker's own; NULL: it has none yet. Thread: the worker's. */
static inline struct by_worker *by_worker_find(struct by_workers *all,
                                               const struct worker *worker) {
    struct by_worker *one = atomic_load_explicit(by_worker_slot(all, worker), memory_order_acquire);
    while (one && one->worker != worker) {
        one = one->next;
    }
    return one;
}

/* `one` is complete: others may see it from now on. Thread: the worker's. */
static inline void by_worker_add(struct by_workers *all, const struct worker *worker,
                                 struct by_worker *one) {
    _Atomic(struct by_worker *) *slot = by_worker_slot(all, worker);
    one->worker = worker;
    one->next = atomic_load_explicit(slot, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(slot, &one->next, one, memory_order_acq_rel,
                                                  memory_order_acquire)) {
    }
}

/* The worker's own, which is made of `n_bytes` zeroed bytes where there is none yet; it begins with
 * a struct by_worker. Returns: NULL when out of memory. Thread: the worker's. */
struct by_worker *by_worker_get(struct by_workers *all, const struct worker *worker,
                                size_t n_bytes);

/* Those of one slot, for a walk over all. Thread: any. */
static inline struct by_worker *by_worker_first(struct by_workers *all, size_t slot) {
    return atomic_load_explicit(&all->slots[slot], memory_order_acquire);
}

/* Gives all of them, which lie on the heap, back. Nobody uses them any more. */
void by_worker_free_all(struct by_workers *all);

#endif
