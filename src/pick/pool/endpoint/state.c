/* An endpoint's state and its place in the ranking, which change together. Everything here is
 * called with the pool's lock held. */
#include <assert.h>
#include <stdlib.h>

#include "pick/pool/state.h"

static void set(_Atomic uint32_t *cell, uint32_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

void endpoint_note(struct pool *pool, const struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (endpoint->wanted) {
        pool_changes_note(&pool->snapshot->changes, endpoint->member);
    }
}

static uint32_t rank_of(const struct endpoint *endpoint) {
    if (!endpoint->wanted || (endpoint->known && !endpoint->ready)) {
        return ENDPOINT_OUT;
    }
    bool avoided = endpoint->refused || !endpoint->known;
    return endpoint_in_flight(endpoint) + (avoided ? ENDPOINT_REFUSED : 0);
}

static void count_unchecked(struct pool *pool, struct endpoint *endpoint) {
    bool unchecked = endpoint->wanted && !endpoint->known && !endpoint->refused;
    if (unchecked != endpoint_is_unchecked(endpoint)) {
        uint32_t n = atomic_load_explicit(&pool->n_unchecked, memory_order_relaxed);
        set(&pool->n_unchecked, unchecked ? n + 1 : n - 1);
        atomic_store_explicit(&endpoint->unchecked, unchecked, memory_order_relaxed);
    }
}

void endpoint_rank_again(struct pool *pool, struct endpoint *endpoint) {
    uint32_t before = endpoint_rank(endpoint), rank = rank_of(endpoint);
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
    set(&endpoint->rank, rank);
    endpoint_note(pool, endpoint);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct endpoint *endpoint_new(const struct pool *pool, const struct endpoint_address *address) {
    struct endpoint *endpoint = aligned_alloc(alignof(struct endpoint), sizeof(*endpoint));
    if (endpoint) {
        *endpoint = (struct endpoint){.rank = ENDPOINT_OUT, .address = *address};
        endpoint->text_len = (uint32_t)endpoint_address_print(address, endpoint->text).len;
        endpoint->host = pool->prefixes ? prefix_table_join(pool->prefixes) : 0;
    }
    return endpoint;
}

void endpoint_free(const struct pool *pool, struct endpoint *endpoint) {
    if (endpoint->host != 0) {
        prefix_table_leave(pool->prefixes, endpoint->host);
    }
    free(endpoint);
}

void endpoint_forget(struct pool *pool, struct endpoint *endpoint) {
    if (endpoint->host != 0) {
        prefix_table_forget(pool->prefixes, endpoint->host);
    }
    set(&endpoint->cold_turn, 0);
    atomic_store_explicit(&endpoint->answered_ns, 0, memory_order_relaxed);
    endpoint_note(pool, endpoint);
}

/* ---- requests -------------------------------------------------------------------------------- */

void endpoint_add_tokens(struct pool *pool, struct endpoint *endpoint, int64_t n) {
    lock_assert_held(&pool->lock);
    atomic_store_explicit(&endpoint->n_tokens, endpoint_n_tokens(endpoint) + (uint64_t)n,
                          memory_order_relaxed);
}

void endpoint_raise(struct pool *pool, struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    lock_assert_held(&pool->lock);
    set(&endpoint->in_flight, endpoint_in_flight(endpoint) + 1);
    pool->n_in_flight++;
    if (rank != ENDPOINT_OUT) {
        ranking_raise(&pool->ranking, &endpoint->ranked);
        set(&endpoint->rank, rank + 1);
    }
    endpoint_note(pool, endpoint);
}

void endpoint_lower(struct pool *pool, struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    lock_assert_held(&pool->lock);
    assert(endpoint_in_flight(endpoint) > 0);
    set(&endpoint->in_flight, endpoint_in_flight(endpoint) - 1);
    pool->n_in_flight--;
    if (rank != ENDPOINT_OUT) {
        ranking_lower(&pool->ranking, &endpoint->ranked);
        set(&endpoint->rank, rank - 1);
    }
    endpoint_note(pool, endpoint);
}

/* ---- those that refused ---------------------------------------------------------------------- */

static void note_first(struct pool *pool) {
    uint64_t due_ns = pool->refused_first ? pool->refused_first->refused_ns : UINT64_MAX;
    atomic_store_explicit(&pool->forgive_ns, due_ns, memory_order_relaxed);
}

void endpoint_forgive(struct pool *pool, struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (!endpoint->refused) {
        return;
    }
    struct endpoint *before = endpoint->refused_before, *after = endpoint->refused_after;
    *(before ? &before->refused_after : &pool->refused_first) = after;
    *(after ? &after->refused_before : &pool->refused_last) = before;
    endpoint->refused_before = endpoint->refused_after = NULL;
    endpoint->refused = false;
    pool->n_refused--;
    note_first(pool);
    endpoint_rank_again(pool, endpoint);
}

void endpoint_refuse(struct pool *pool, struct endpoint *endpoint, uint64_t until_ns) {
    endpoint_forgive(pool, endpoint);
    endpoint_forget(pool, endpoint);
    endpoint->refused = true;
    endpoint->refused_ns = until_ns;
    endpoint->refused_before = pool->refused_last;
    *(pool->refused_last ? &pool->refused_last->refused_after : &pool->refused_first) = endpoint;
    pool->refused_last = endpoint;
    pool->n_refused++;
    note_first(pool);
    endpoint_rank_again(pool, endpoint);
}

/* The list is in the order of the times, but where the setting was lowered in between: then one
 * waits for the one in front of it. */
void endpoint_forgive_due(struct pool *pool, uint64_t now_ns) {
    lock_assert_held(&pool->lock);
    while (pool->refused_first && pool->refused_first->refused_ns <= now_ns) {
        endpoint_forgive(pool, pool->refused_first);
    }
}
