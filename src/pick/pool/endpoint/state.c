/* An endpoint's state and its place in the ranking, which change together. Everything here is
 * called with the pool's lock held. */
#include <assert.h>
#include <stdlib.h>

#include "pick/pool/state.h"

static void store_u32(_Atomic uint32_t *cell, uint32_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

void endpoint_record_change(struct pool *pool, const struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (endpoint->in_pool) {
        pool_changes_add(&pool->snapshot->changes, endpoint->member);
    }
}

static uint32_t compute_rank(const struct endpoint *endpoint) {
    if (!endpoint->in_pool || (endpoint->known && !endpoint->ready)) {
        return ENDPOINT_OUT;
    }
    bool avoided = endpoint->refused || !endpoint->known;
    return endpoint_in_flight(endpoint) + (avoided ? ENDPOINT_REFUSED : 0);
}

static void count_unchecked(struct pool *pool, struct endpoint *endpoint) {
    bool unchecked = endpoint->in_pool && !endpoint->known && !endpoint->refused;
    if (unchecked != endpoint_is_unchecked(endpoint)) {
        uint32_t n = atomic_load_explicit(&pool->n_unchecked, memory_order_relaxed);
        store_u32(&pool->n_unchecked, unchecked ? n + 1 : n - 1);
        atomic_store_explicit(&endpoint->unchecked, unchecked, memory_order_relaxed);
    }
}

void endpoint_update_rank(struct pool *pool, struct endpoint *endpoint) {
    uint32_t before = endpoint_rank(endpoint), rank = compute_rank(endpoint);
    lock_assert_held(&pool->lock);
    count_unchecked(pool, endpoint);
    if (rank == before) {
        return;
    }
    if (before != ENDPOINT_OUT) {
        ranking_remove(&pool->ranking, &endpoint->ranked);
    }
    if (rank != ENDPOINT_OUT) {
        ranking_insert(&pool->ranking, &endpoint->ranked, rank);
    }
    store_u32(&endpoint->rank, rank);
    endpoint_record_change(pool, endpoint);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct endpoint *endpoint_new(const struct pool *pool, const struct endpoint_address *address) {
    struct endpoint *endpoint = aligned_alloc(alignof(struct endpoint), sizeof(*endpoint));
    if (endpoint) {
        *endpoint = (struct endpoint){.rank = ENDPOINT_OUT, .address = *address};
        endpoint->text_len = (uint32_t)endpoint_address_print(address, endpoint->text).len;
        endpoint->host = pool->prefix_table ? prefix_table_add_host(pool->prefix_table) : 0;
    }
    return endpoint;
}

void endpoint_free(const struct pool *pool, struct endpoint *endpoint) {
    if (endpoint->host != 0) {
        prefix_table_remove_host(pool->prefix_table, endpoint->host);
    }
    free(endpoint);
}

void endpoint_reset_history(struct pool *pool, struct endpoint *endpoint) {
    if (endpoint->host != 0) {
        prefix_table_invalidate_host(pool->prefix_table, endpoint->host);
    }
    store_u32(&endpoint->last_cold_request, 0);
    atomic_store_explicit(&endpoint->answered_ns, 0, memory_order_relaxed);
    endpoint_record_change(pool, endpoint);
}

/* ---- requests -------------------------------------------------------------------------------- */

void endpoint_add_tokens(struct pool *pool, struct endpoint *endpoint, int64_t n) {
    lock_assert_held(&pool->lock);
    atomic_store_explicit(&endpoint->n_tokens, endpoint_n_tokens(endpoint) + (uint64_t)n,
                          memory_order_relaxed);
}

void endpoint_add_request(struct pool *pool, struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    lock_assert_held(&pool->lock);
    store_u32(&endpoint->in_flight, endpoint_in_flight(endpoint) + 1);
    pool->n_in_flight++;
    if (rank != ENDPOINT_OUT) {
        ranking_increment(&pool->ranking, &endpoint->ranked);
        store_u32(&endpoint->rank, rank + 1);
    }
    endpoint_record_change(pool, endpoint);
}

void endpoint_remove_request(struct pool *pool, struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    lock_assert_held(&pool->lock);
    assert(endpoint_in_flight(endpoint) > 0);
    store_u32(&endpoint->in_flight, endpoint_in_flight(endpoint) - 1);
    pool->n_in_flight--;
    if (rank != ENDPOINT_OUT) {
        ranking_decrement(&pool->ranking, &endpoint->ranked);
        store_u32(&endpoint->rank, rank - 1);
    }
    endpoint_record_change(pool, endpoint);
}

/* ---- those that refused ---------------------------------------------------------------------- */

static void update_refusal_expiry(struct pool *pool) {
    uint64_t due_ns = pool->refused_first ? pool->refused_first->refused_until_ns : UINT64_MAX;
    atomic_store_explicit(&pool->next_refusal_expiry_ns, due_ns, memory_order_relaxed);
}

void endpoint_clear_refused(struct pool *pool, struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (!endpoint->refused) {
        return;
    }
    struct endpoint *before = endpoint->refused_prev, *after = endpoint->refused_next;
    *(before ? &before->refused_next : &pool->refused_first) = after;
    *(after ? &after->refused_prev : &pool->refused_last) = before;
    endpoint->refused_prev = endpoint->refused_next = NULL;
    endpoint->refused = false;
    pool->n_refused--;
    update_refusal_expiry(pool);
    endpoint_update_rank(pool, endpoint);
}

void endpoint_set_refused(struct pool *pool, struct endpoint *endpoint, uint64_t until_ns) {
    endpoint_clear_refused(pool, endpoint);
    endpoint_reset_history(pool, endpoint);
    endpoint->refused = true;
    endpoint->refused_until_ns = until_ns;
    endpoint->refused_prev = pool->refused_last;
    *(pool->refused_last ? &pool->refused_last->refused_next : &pool->refused_first) = endpoint;
    pool->refused_last = endpoint;
    pool->n_refused++;
    update_refusal_expiry(pool);
    endpoint_update_rank(pool, endpoint);
}

/* The list is in the order of the times, but where the setting was lowered in between: then one
 * waits for the one in front of it. */
void endpoint_clear_expired_refusals(struct pool *pool, uint64_t now_ns) {
    lock_assert_held(&pool->lock);
    while (pool->refused_first && pool->refused_first->refused_until_ns <= now_ns) {
        endpoint_clear_refused(pool, pool->refused_first);
    }
}
