/* The list of the members of a snapshot of which something changed, the newest of them: who keeps a
 * copy of what is known of all members reads again only those. An old entry is overwritten by a new
 * one; whoever comes too late for an entry sees it, and reads all.
 *
 * Thread: one at a time writes, under the pool's lock; anyone reads. */
#ifndef SLUICE_PICK_POOL_CHANGES_H
#define SLUICE_PICK_POOL_CHANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool_changes {
    _Atomic uint64_t n; /* since the snapshot was made */
    uint32_t mask;      /* of the entries: a power of two less 1 */
    /* In the upper half the lower half of its number, counted from 1; in the lower the member. */
    _Atomic uint64_t *entries;
};

/* After the change itself. */
static inline void pool_changes_add(struct pool_changes *changes, uint32_t member) {
    uint64_t n = atomic_load_explicit(&changes->n, memory_order_relaxed);
    atomic_store_explicit(&changes->entries[n & changes->mask], (n + 1) << 32 | member,
                          memory_order_relaxed);
    atomic_store_explicit(&changes->n, n + 1, memory_order_release);
}

/* Whoever reads a member afterwards sees all changes up to this one. */
static inline uint64_t pool_changes_count(const struct pool_changes *changes) {
    return atomic_load_explicit(&changes->n, memory_order_acquire);
}

/* The member of change `i`, counted from 0. Returns: false when it was overwritten. */
static inline bool pool_changes_get(const struct pool_changes *changes, uint64_t i,
                                    uint32_t *member) {
    uint64_t entry =
        atomic_load_explicit(&changes->entries[i & changes->mask], memory_order_relaxed);
    *member = (uint32_t)entry;
    return entry >> 32 == (uint32_t)(i + 1);
}

#endif
