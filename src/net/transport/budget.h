/* What all servers of a process share: the memory of bodies in flight and the number of
 * connections, each with its limit. Zeroed except for the limits; outlives the servers.
 *
 * Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_BUDGET_H
#define SLUICE_NET_TRANSPORT_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct net_budget {
    uint64_t body_memory;     /* --body-memory, of all bodies: net_budget_reserve */
    uint64_t max_connections; /* --max-connections: net_budget_add_conn */
    _Atomic uint64_t n_body_bytes;
    _Atomic uint64_t n_conns;
};

/* Returns: whether `n_bytes` fit now. */
static inline bool net_budget_fits(const struct net_budget *budget, uint64_t n_bytes) {
    uint64_t used = atomic_load_explicit(&budget->n_body_bytes, memory_order_relaxed);
    return used <= budget->body_memory && n_bytes <= budget->body_memory - used;
}

/* Returns: false when they don't fit; nothing is reserved then. */
static inline bool net_budget_reserve(struct net_budget *budget, uint64_t n_bytes) {
    uint64_t used = atomic_fetch_add_explicit(&budget->n_body_bytes, n_bytes, memory_order_relaxed);
    if (used <= budget->body_memory && n_bytes <= budget->body_memory - used) {
        return true;
    }
    atomic_fetch_sub_explicit(&budget->n_body_bytes, n_bytes, memory_order_relaxed);
    return false;
}

static inline void net_budget_release(struct net_budget *budget, uint64_t n_bytes) {
    atomic_fetch_sub_explicit(&budget->n_body_bytes, n_bytes, memory_order_relaxed);
}

/* Counts a connection, even one over the limit, until it is closed. Returns: the number of
 * connections over the limit. */
static inline uint64_t net_budget_add_conn(struct net_budget *budget) {
    uint64_t n = atomic_fetch_add_explicit(&budget->n_conns, 1, memory_order_relaxed) + 1;
    return n > budget->max_connections ? n - budget->max_connections : 0;
}

static inline void net_budget_remove_conn(struct net_budget *budget) {
    atomic_fetch_sub_explicit(&budget->n_conns, 1, memory_order_relaxed);
}

#endif
