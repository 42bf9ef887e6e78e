/* The life of a pool and its readers, and what becomes known of its endpoints. How a pool changes
 * is in update.c, how one is chosen in pick.c. */
#include "pick/pool/pool.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/state.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a pool");
}

/* ---- the pool -------------------------------------------------------------------------------- */

static enum status make_empty_snapshot(struct pool *pool, struct error *err) {
    struct pool_spec *spec;
    enum status st = pool_spec_new(&spec, err);
    if (st == ST_OK) {
        st = pool_snapshot_new(spec, 0, &pool->snapshot, err);
        if (st != ST_OK) {
            pool_spec_free(spec);
        }
    }
    return st;
}

enum status pool_new(struct pool **out, struct error *err) {
    struct pool *pool = calloc(1, sizeof(*pool));
    if (!pool) {
        return no_memory(err);
    }
    enum status st = make_empty_snapshot(pool, err);
    if (st != ST_OK) {
        free(pool);
        return st;
    }
    lock_init(&pool->updating);
    lock_init(&pool->lock);
    atomic_init(&pool->n_refs, 1);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->next_refusal_expiry_ns, UINT64_MAX);
    atomic_init(&pool->loads_valid_until_ns, 0);
    atomic_init(&pool->n_unrestricted, 0);
    atomic_init(&pool->capacity_epoch, 0);
    atomic_init(&pool->ticked_ns, 0);
    flow_init(&pool->flow);
    *out = pool;
    return ST_OK;
}

static void pool_destroy(struct pool *pool) {
    assert(pool->n_in_flight == 0);
    pool_snapshot_unref(pool->snapshot);
    for (size_t i = 0; i < pool->n_known; i++) {
        assert(atomic_load_explicit(&pool->known[i]->n_snapshots, memory_order_acquire) == 0);
        endpoint_free(pool, pool->known[i]);
    }
    free(pool->known);
    prefix_table_unref(pool->prefix_table);
    ranking_fini(&pool->ranking);
    free(pool->name_bytes);
    flow_fini(&pool->flow);
    lock_fini(&pool->updating);
    lock_fini(&pool->lock);
    free(pool);
}

void pool_free(struct pool *pool) {
    if (pool) {
        assert(atomic_load_explicit(&pool->n_refs, memory_order_acquire) == 1);
        pool_unref(pool);
    }
}

void pool_ref(struct pool *pool) {
    atomic_fetch_add_explicit(&pool->n_refs, 1, memory_order_relaxed);
}

void pool_unref(struct pool *pool) {
    if (atomic_fetch_sub_explicit(&pool->n_refs, 1, memory_order_acq_rel) == 1) {
        pool_destroy(pool);
    }
}

enum status pool_new_named(struct str name, struct pool **out, struct error *err) {
    struct pool *pool = NULL;
    enum status st = pool_new(&pool, err);
    if (!pool) {
        return st;
    }
    *out = pool;
    if (name.len == 0) {
        return ST_OK;
    }
    pool->name_bytes = str_dup(name);
    if (!pool->name_bytes) {
        pool_free(pool);
        *out = NULL;
        return no_memory(err);
    }
    pool->name = str_make(pool->name_bytes, name.len);
    return ST_OK;
}

struct str pool_name(const struct pool *pool) {
    return pool->name;
}

void pool_attach_prefix_table(struct pool *pool, struct prefix_table *table) {
    if (table && !pool->prefix_table) {
        assert(pool->n_known == 0);
        pool->prefix_table = prefix_table_ref(table);
    }
}

uint64_t pool_generation(const struct pool *pool) {
    return atomic_load_explicit(&pool->generation, memory_order_acquire);
}

void pool_get_stats(struct pool *pool, struct pool_stats *out) {
    lock_acquire(&pool->lock);
    uint32_t n_unchecked = atomic_load_explicit(&pool->n_unchecked, memory_order_relaxed);
    *out = (struct pool_stats){
        .generation = pool->snapshot->generation,
        .n_endpoints = pool->snapshot->n_members,
        .n_ready = pool->ranking.n - n_unchecked,
        .n_unchecked = n_unchecked,
        .n_refused = pool->n_refused,
        .n_in_flight = pool->n_in_flight,
    };
    lock_release(&pool->lock);
}

/* ---- readers --------------------------------------------------------------------------------- */

static struct pool_snapshot *ref_newest_snapshot(struct pool *pool) {
    lock_acquire(&pool->lock);
    struct pool_snapshot *snapshot = pool->snapshot;
    pool_snapshot_ref(snapshot);
    lock_release(&pool->lock);
    return snapshot;
}

enum status pool_reader_new(struct pool *pool, uint64_t seed, struct pool_reader **out,
                            struct error *err) {
    struct pool_reader *reader = calloc(1, sizeof(*reader));
    if (!reader) {
        return no_memory(err);
    }
    if (seed == 0) {
        random_fill(&seed, sizeof(seed));
    }
    pool_ref(pool);
    reader->pool = pool;
    reader->n_refs = 1;
    reader->prng.state = seed;
    reader->snapshot = ref_newest_snapshot(pool);
    *out = reader;
    return ST_OK;
}

void pool_reader_unref(struct pool_reader *reader) {
    if (reader && --reader->n_refs == 0) {
        struct pool *pool = reader->pool;
        pool_snapshot_unref(reader->snapshot);
        free(reader->subset_marks);
        pool_view_fini(&reader->view);
        free(reader);
        pool_unref(pool);
    }
}

struct pool_reader *pool_reader_ref(struct pool_reader *reader) {
    reader->n_refs++;
    return reader;
}

struct pool *pool_reader_pool(const struct pool_reader *reader) {
    return reader->pool;
}

struct pool_snapshot *pool_reader_refresh(struct pool_reader *reader) {
    if (pool_generation(reader->pool) != reader->snapshot->generation) {
        struct pool_snapshot *old = reader->snapshot;
        reader->snapshot = ref_newest_snapshot(reader->pool);
        pool_snapshot_unref(old);
    }
    return reader->snapshot;
}

/* ---- tickets --------------------------------------------------------------------------------- */

void pool_release_ticket(struct pool *pool, struct pool_ticket *ticket) {
    struct endpoint *endpoint = ticket->endpoint;
    ticket->endpoint = NULL;
    if (endpoint) {
        struct pool_notifications notifications = {NULL};
        lock_acquire(&pool->lock);
        endpoint_add_tokens(pool, endpoint, -(int64_t)ticket->n_tokens);
        pool_release_capacity(pool, endpoint, &notifications);
        lock_release(&pool->lock); /* the pool may free it from here on */
        pool_send_notifications(&notifications);
    }
}

bool pool_ticket_move(struct pool_reader *reader, struct pool_ticket *ticket,
                      const struct endpoint_address *served) {
    const struct pool_member *member = pool_snapshot_find(pool_reader_refresh(reader), served);
    struct endpoint *from = ticket->endpoint, *to = member ? member->endpoint : NULL;
    if (!from || !to || from == to) {
        return false;
    }
    struct pool_notifications notifications = {NULL};
    lock_acquire(&reader->pool->lock);
    endpoint_add_tokens(reader->pool, to, ticket->n_tokens);
    endpoint_add_tokens(reader->pool, from, -(int64_t)ticket->n_tokens);
    endpoint_add_request(reader->pool, to);
    pool_release_capacity(reader->pool, from, &notifications);
    lock_release(&reader->pool->lock);
    pool_send_notifications(&notifications);
    ticket->endpoint = to;
    return true;
}

/* ---- what becomes known ---------------------------------------------------------------------- */

void pool_set_ready(struct pool *pool, struct endpoint *endpoint, bool ready) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    if (endpoint->in_pool && pool->snapshot->spec->health.kind != POOL_HEALTH_NONE) {
        endpoint->known = true;
        endpoint->ready = ready;
        if (!ready) {
            endpoint_reset_history(pool, endpoint);
            endpoint_clear_refused(pool, endpoint); /* once it is ready again it was just seen to
                                                       be */
        }
        endpoint_update_rank(pool, endpoint);
        pool_notify_waiters(pool, endpoint, &notifications);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

void pool_report_refused(struct pool *pool, struct endpoint *endpoint) {
    uint64_t now_ns = clock_now_ns();
    lock_acquire(&pool->lock);
    if (endpoint_is_eligible(endpoint)) {
        endpoint_set_refused(pool, endpoint, now_ns + pool->snapshot->spec->refused_ns);
    }
    lock_release(&pool->lock);
}

void pool_report_answered(struct pool *pool, struct endpoint *endpoint) {
    if (atomic_load_explicit(&pool->next_refusal_expiry_ns, memory_order_relaxed) == UINT64_MAX) {
        return; /* nobody is avoided: the usual case costs no lock */
    }
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    endpoint_clear_refused(pool, endpoint);
    pool_notify_waiters(pool, endpoint, &notifications);
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

void pool_set_load(struct pool *pool, const struct endpoint *endpoint,
                   const struct endpoint_load *load) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    struct pool_snapshot *snapshot = pool->snapshot;
    if (endpoint->in_pool) {
        uint32_t i = endpoint->member;
        bool awaited = pool_is_capacity_awaited(pool, endpoint);
        load_cell_set(load, &snapshot->loads[i], &snapshot->adapters[i]);
        pool_changes_add(&snapshot->changes, i);
        if (load->until_ns >
            atomic_load_explicit(&pool->loads_valid_until_ns, memory_order_relaxed)) {
            atomic_store_explicit(&pool->loads_valid_until_ns, load->until_ns,
                                  memory_order_relaxed);
        }
        pool_notify_if_awaited(pool, snapshot->members[i].endpoint, awaited, &notifications);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

/* Every endpoint is the pool's, whoever looks at it only. */
void pool_count_scrape_failure(const struct endpoint *endpoint) {
    struct endpoint *own = (struct endpoint *)(uintptr_t)endpoint;
    atomic_fetch_add_explicit(&own->n_scrape_failures, 1, memory_order_relaxed);
}
