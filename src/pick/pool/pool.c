/* A pool: its endpoints' ranks, its readers, its updates, its tickets, and what is reported about
 * its endpoints. */
#include "pick/pool/pool.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/state.h"

/* ---- ranks ----------------------------------------------------------------------------------- */

/* An endpoint's state and its position in the ranking change together. The functions up to "the
 * pool" run under the pool's lock. */
static void store_u32(_Atomic uint32_t *cell, uint32_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

void endpoint_record_change(struct pool *pool, struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (endpoint->in_pool) {
        pool_changes_add(&pool->snapshot->changes, endpoint->member);
        if (pool_spec_is_by_pool(pool->snapshot->spec)) {
            pool_saturation_update(pool, endpoint);
        }
    }
}

/* With a limit, a debt leaves the endpoint before those that are full: where no loads are known,
 * they are all full when the first one is. */
static uint32_t count_with_debt(const struct pool *pool, const struct endpoint *endpoint) {
    uint32_t in_flight = endpoint_in_flight(endpoint), debt = endpoint_debt(endpoint);
    uint64_t limit = pool->snapshot ? pool->snapshot->spec->max_in_flight : 0;
    if (limit == 0 || in_flight >= limit) {
        return in_flight + debt;
    }
    uint64_t count = (uint64_t)in_flight + debt;
    return (uint32_t)(count < limit ? count : limit - 1);
}

static uint32_t compute_rank(const struct pool *pool, const struct endpoint *endpoint) {
    if (!endpoint->in_pool || (endpoint->known && !endpoint->ready)) {
        return ENDPOINT_OUT;
    }
    bool avoided = endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED || !endpoint->known;
    return count_with_debt(pool, endpoint) + (avoided                             ? ENDPOINT_REFUSED
                                              : endpoint_is_window_full(endpoint) ? ENDPOINT_LIMITED
                                                                                  : 0);
}

/* Records for waiters whether the member is ready, not avoided and not limited. */
static void note_preferred(const struct pool_snapshot *snapshot, const struct endpoint *endpoint) {
    uint32_t i = endpoint->member;
    uint64_t bit = UINT64_C(1) << i % 64;
    if (endpoint_rank(endpoint) < ENDPOINT_LIMITED) {
        snapshot->preferred[i / 64] |= bit;
    } else {
        snapshot->preferred[i / 64] &= ~bit;
    }
}

static void count_unchecked(struct pool *pool, struct endpoint *endpoint) {
    bool unchecked = endpoint->in_pool && !endpoint->known &&
                     endpoint_avoidance(endpoint) == ENDPOINT_NOT_AVOIDED;
    if (unchecked != endpoint_is_unchecked(endpoint)) {
        uint32_t n = atomic_load_explicit(&pool->n_unchecked, memory_order_relaxed);
        store_u32(&pool->n_unchecked, unchecked ? n + 1 : n - 1);
        atomic_store_explicit(&endpoint->unchecked, unchecked, memory_order_relaxed);
    }
}

void endpoint_update_rank(struct pool *pool, struct endpoint *endpoint) {
    uint32_t before = endpoint_rank(endpoint), rank = compute_rank(pool, endpoint);
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
    if (before == ENDPOINT_OUT ? pool->ranking.n == 1 : pool->ranking.n == 0) {
        pool->readiness_since_ns = clock_now_ns();
    }
    if (before >= ENDPOINT_LIMITED || rank >= ENDPOINT_LIMITED) {
        pool->queue_epoch++; /* whether others are avoided makes a difference to waiters */
    }
    if (endpoint->in_pool) {
        note_preferred(pool->snapshot, endpoint);
    }
    endpoint_record_change(pool, endpoint);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static struct endpoint *endpoint_new(const struct pool *pool,
                                     const struct endpoint_address *address) {
    struct endpoint *endpoint = aligned_alloc(alignof(struct endpoint), sizeof(*endpoint));
    if (endpoint) {
        *endpoint = (struct endpoint){.rank = ENDPOINT_OUT, .address = *address};
        endpoint->text_len = (uint32_t)endpoint_address_print(address, endpoint->text).len;
        endpoint->host = pool->prefix_table ? prefix_table_add_host(pool->prefix_table) : 0;
    }
    return endpoint;
}

static void endpoint_free(const struct pool *pool, struct endpoint *endpoint) {
    if (endpoint && endpoint->host != 0) {
        prefix_table_remove_host(pool->prefix_table, endpoint->host);
    }
    free(endpoint);
}

static void endpoint_reset_history(struct pool *pool, struct endpoint *endpoint) {
    if (endpoint->host != 0) {
        prefix_table_invalidate_host(pool->prefix_table, endpoint->host);
    }
    store_u32(&endpoint->last_cold_request, 0);
    atomic_store_explicit(&endpoint->answered_ns, 0, memory_order_relaxed);
    endpoint_record_change(pool, endpoint);
}

/* ---- requests in flight ---------------------------------------------------------------------- */

void endpoint_add_tokens(struct pool *pool, struct endpoint *endpoint, int64_t n) {
    lock_assert_held(&pool->lock);
    atomic_store_explicit(&endpoint->n_tokens, endpoint_n_tokens(endpoint) + (uint64_t)n,
                          memory_order_relaxed);
}

static __attribute__((cold, noinline)) bool is_rank_bounded(const struct pool *pool,
                                                            const struct endpoint *endpoint) {
    uint64_t count = (uint64_t)endpoint_in_flight(endpoint) + endpoint_debt(endpoint);
    return endpoint_window_size(endpoint) > 0 || count >= pool->snapshot->spec->max_in_flight - 1;
}

/* Whether one request more or less may change the rank by something else than one. */
static inline bool is_rank_computed(const struct pool *pool, const struct endpoint *endpoint) {
    uint32_t unusual = endpoint_window_size(endpoint) | endpoint_debt(endpoint);
    return unusual != 0 && is_rank_bounded(pool, endpoint);
}

void endpoint_add_request(struct pool *pool, struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    lock_assert_held(&pool->lock);
    store_u32(&endpoint->in_flight, endpoint_in_flight(endpoint) + 1);
    pool->n_in_flight++;
    if (is_rank_computed(pool, endpoint)) {
        endpoint_update_rank(pool, endpoint);
    } else if (rank != ENDPOINT_OUT) {
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
    if (is_rank_computed(pool, endpoint)) {
        endpoint_update_rank(pool, endpoint);
    } else if (rank != ENDPOINT_OUT) {
        ranking_decrement(&pool->ranking, &endpoint->ranked);
        store_u32(&endpoint->rank, rank - 1);
    }
    endpoint_record_change(pool, endpoint);
}

/* ---- avoided endpoints ----------------------------------------------------------------------- */

/* Outlier detection was switched off. */
static void clear_ejections(struct pool *pool) {
    struct endpoint *next, *endpoint = TAILQ_FIRST(&pool->avoided);
    for (; endpoint; endpoint = next) {
        next = TAILQ_NEXT(endpoint, avoided_link);
        if (endpoint_avoidance(endpoint) == ENDPOINT_EJECTED) {
            endpoint_clear_avoided(pool, endpoint);
        }
    }
}

/* ---- the pool -------------------------------------------------------------------------------- */

static enum status make_empty_snapshot(struct pool *pool, struct error *err) {
    struct pool_spec *spec = pool_spec_new();
    enum status st = pool_snapshot_new(spec, 0, &pool->snapshot, err);
    if (st != ST_OK) {
        pool_spec_free(spec);
    }
    return st;
}

enum status pool_new(struct pool **out, struct error *err) {
    struct pool *pool = calloc(1, sizeof(*pool));
    if (!pool) {
        return error_no_memory(err, "a pool");
    }
    enum status st = make_empty_snapshot(pool, err);
    if (st != ST_OK) {
        free(pool);
        return st;
    }
    lock_init(&pool->updating);
    lock_init(&pool->lock);
    lock_init(&pool->burst_lock);
    atomic_init(&pool->n_refs, 1);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->n_unseen, UINT32_MAX); /* no response was seen yet */
    TAILQ_INIT(&pool->avoided);
    TAILQ_INIT(&pool->tried);
    TAILQ_INIT(&pool->indebted);
    atomic_init(&pool->next_avoidance_expiry_ns, UINT64_MAX);
    atomic_init(&pool->loads_valid_until_ns, 0);
    atomic_init(&pool->n_unrestricted, 0);
    atomic_init(&pool->capacity_epoch, 0);
    atomic_init(&pool->ticked_ns, 0);
    pool->queue_epoch = 1;
    flow_init(&pool->flow);
    plugin_times_init(&pool->plugin_times);
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
    free(pool->outcomes);
    plugin_times_fini(&pool->plugin_times);
    prefix_table_unref(pool->prefix_table);
    ranking_fini(&pool->ranking);
    free(pool->name_bytes);
    flow_fini(&pool->flow);
    pool_eviction_fini(&pool->eviction);
    lock_fini(&pool->updating);
    lock_fini(&pool->lock);
    assert(!pool->burst);
    lock_fini(&pool->burst_lock);
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
        return error_no_memory(err, "a pool");
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

size_t pool_plugin_times(const struct pool *pool, const struct plugin_times_row *const **out) {
    *out = (const struct plugin_times_row *const *)pool->plugin_times.rows;
    return atomic_load_explicit(&pool->plugin_times.n, memory_order_acquire);
}

void pool_note_unchecked_model(struct pool *pool) {
    if (atomic_load_explicit(&pool->is_unchecked_noted, memory_order_relaxed) ||
        atomic_exchange(&pool->is_unchecked_noted, true)) {
        return;
    }
    log_event(LOG_WARNING, "models in request bodies are neither checked nor replaced",
              LOG_STR("pool", pool->name),
              LOG_CSTR("reason",
                       "the proxy did not send the body of a request that names its model "
                       "there: set request_body_mode to FULL_DUPLEX_STREAMED or BUFFERED, "
                       "or allow_mode_override to true"));
}

void pool_note_requested_body(struct pool *pool) {
    if (!atomic_load_explicit(&pool->has_requested_bodies, memory_order_relaxed)) {
        atomic_store_explicit(&pool->has_requested_bodies, true, memory_order_relaxed);
    }
}

bool pool_is_proxy_silent(const struct pool *pool) {
    return !pool_has_results(pool) &&
           !atomic_load_explicit(&pool->has_requested_bodies, memory_order_relaxed);
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
        .n_refused = pool->n_avoided[ENDPOINT_CONNECTION_REFUSED],
        .n_ejected = pool->n_avoided[ENDPOINT_EJECTED],
        .n_shedding = pool->n_avoided[ENDPOINT_SHEDDING],
        .n_avoided_kinds = atomic_load_explicit(&pool->n_avoided_kinds, memory_order_relaxed),
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
        return error_no_memory(err, "a pool");
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

/* Updates. All that can fail or take long is done before the lock is taken; under it only the
 * endpoints that are added or removed are changed, and the snapshot is replaced.
 *
 * An endpoint is freed only here: when no snapshot contains it (so no reader can reach it, and no
 * later snapshot will contain it) and no request is in flight to it (so no ticket refers to it). An
 * endpoint that is removed and added again before that is the same one. */
struct pool_change {
    struct pool_snapshot *old, *fresh;
    struct endpoint **known; /* all endpoints, with the new ones; sorted */
    size_t n_known;
    struct endpoint **moves; /* first those removed, then those added */
    size_t n_removed, n_moves;
};

/* ---- updates: preparation -------------------------------------------------------------------- */

/* Finds or allocates the endpoint of each new member. */
static enum status find_or_add_endpoints(const struct pool *pool, struct pool_change *change,
                                         struct error *err) {
    struct pool_member *members = change->fresh->members;
    size_t n_old = pool->n_known, n_new = change->fresh->n_members, i = 0, k = 0, n;
    change->known = checked_add(n_old, n_new, &n) ? calloc(n + 1, sizeof(struct endpoint *)) : NULL;
    if (!change->known) {
        return error_no_memory(err, "a pool of %u endpoints", change->fresh->n_members);
    }
    while (i < n_old || k < n_new) {
        int order = k == n_new ? -1
                    : i == n_old
                        ? 1
                        : endpoint_address_compare(&pool->known[i]->address, &members[k].address);
        struct endpoint *next =
            order > 0 ? endpoint_new(pool, &members[k].address) : pool->known[i++];
        if (!next) {
            return error_no_memory(err, "a pool of %u endpoints", change->fresh->n_members);
        }
        change->known[change->n_known++] = next;
        if (order >= 0) {
            members[k++].endpoint = next;
        }
    }
    return ST_OK;
}

/* Indexes members by their endpoints' host numbers in the prefix table. */
static enum status index_hosts(struct pool_change *change, struct error *err) {
    struct pool_snapshot *fresh = change->fresh;
    uint32_t first = UINT32_MAX, behind = 0;
    for (uint32_t i = 0; i < fresh->n_members; i++) {
        uint32_t host = fresh->members[i].endpoint->host; /* 0: none */
        first = host > 0 && host < first ? host : first;
        behind = host < behind ? behind : host + 1;
    }
    fresh->first_host = first;
    fresh->n_hosts = behind > first ? behind - first : 0;
    fresh->hosts = arena_calloc(fresh->spec->arena, fresh->n_hosts + 1, sizeof(*fresh->hosts));
    if (!fresh->hosts) {
        return error_no_memory(err, "a pool of %u endpoints", change->fresh->n_members);
    }
    for (uint32_t i = 0; i < fresh->n_members; i++) {
        uint32_t host = fresh->members[i].endpoint->host;
        if (host > 0) {
            fresh->hosts[host - first] = i + 1;
        }
    }
    return ST_OK;
}

/* Appends to the moves the endpoints that are in `one` and not in `other`. */
static void list_moves(struct pool_change *change, const struct pool_snapshot *one,
                       const struct pool_snapshot *other) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < one->n_members; i++) {
        const struct endpoint_address *address = &one->members[i].address;
        while (k < other->n_members &&
               endpoint_address_compare(&other->members[k].address, address) < 0) {
            k++;
        }
        if (k == other->n_members || !endpoint_address_equal(&other->members[k].address, address)) {
            change->moves[change->n_moves++] = one->members[i].endpoint;
        }
    }
}

/* Copies the load reports of members that stay. A report that arrives meanwhile is lost; the next
 * one follows soon. */
static void copy_loads(const struct pool_change *change) {
    const struct pool_snapshot *old = change->old;
    struct endpoint_load load;
    for (uint32_t i = 0; i < change->fresh->n_members; i++) {
        const struct pool_member *before =
            pool_snapshot_find(old, &change->fresh->members[i].address);
        if (before) {
            pool_snapshot_get_load(old, before, 0, &load);
            load_cell_set(&load, &change->fresh->loads[i], &change->fresh->adapters[i]);
        }
    }
}

/* The same of attributes that are still read. */
static void copy_attributes(const struct pool_change *change) {
    const struct pool_snapshot *old = change->old, *fresh = change->fresh;
    uint32_t before[ATTRIBUTES_MAX];
    for (uint32_t k = 0; k < fresh->n_attributes; k++) {
        for (before[k] = 0;
             before[k] < old->n_attributes &&
             !attribute_key_equal(&old->attribute_keys[before[k]], &fresh->attribute_keys[k]);
             before[k]++) {
        }
    }
    for (uint32_t i = 0; fresh->n_attributes > 0 && i < fresh->n_members; i++) {
        const struct pool_member *member = pool_snapshot_find(old, &fresh->members[i].address);
        for (uint32_t k = 0; member && k < fresh->n_attributes; k++) {
            size_t row = (size_t)(member - old->members) * old->n_attributes;
            double value;
            if (before[k] < old->n_attributes &&
                attribute_cell_get(&old->attributes[row + before[k]], 0, &value)) {
                attribute_cell_set(&fresh->attributes[(size_t)i * fresh->n_attributes + k],
                                   atomic_load_explicit(&old->attributes[row + before[k]].until_ns,
                                                        memory_order_relaxed),
                                   value);
            }
        }
    }
}

static enum status prepare_change(const struct pool *pool, struct pool_change *change,
                                  struct error *err) {
    enum status st = find_or_add_endpoints(pool, change, err);
    if (st == ST_OK) {
        st = index_hosts(change, err);
    }
    if (st != ST_OK) {
        return st;
    }
    size_t n = (size_t)change->old->n_members + change->fresh->n_members;
    change->moves = calloc(n + 1, sizeof(struct endpoint *));
    if (!change->moves) {
        return error_no_memory(err, "a pool of %u endpoints", change->fresh->n_members);
    }
    list_moves(change, change->old, change->fresh);
    change->n_removed = change->n_moves;
    list_moves(change, change->fresh, change->old);
    copy_loads(change);
    copy_attributes(change);
    return session_tables_attach(change->fresh, change->old, err);
}

/* ---- updates: publication -------------------------------------------------------------------- */

/* Health checks were switched off. */
static void mark_all_ready(struct pool *pool, const struct pool_snapshot *snapshot) {
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        snapshot->members[i].endpoint->known = snapshot->members[i].endpoint->ready = true;
        endpoint_update_rank(pool, snapshot->members[i].endpoint);
    }
}

/* max_in_flight may have changed. */
static void update_indebted(struct pool *pool) {
    struct endpoint *endpoint;
    TAILQ_FOREACH(endpoint, &pool->indebted, indebted_link) {
        endpoint_update_rank(pool, endpoint);
    }
}

static void publish_snapshot(struct pool *pool, struct pool_change *change) {
    bool checked = change->fresh->spec->health.kind != POOL_HEALTH_NONE;
    pool->snapshot = change->fresh;
    for (uint32_t i = 0; i < change->fresh->n_members; i++) {
        change->fresh->members[i].endpoint->member = i;
        change->fresh->members[i].endpoint->profiles = change->fresh->members[i].profiles;
        note_preferred(change->fresh, change->fresh->members[i].endpoint);
    }
    for (size_t i = 0; i < change->n_moves; i++) {
        struct endpoint *endpoint = change->moves[i];
        bool is_added = i >= change->n_removed;
        assert(endpoint);
        endpoint->in_pool = is_added;
        endpoint->known = endpoint->ready = is_added && !checked;
        endpoint_clear_avoided(pool, endpoint);
        endpoint_forget_debt(pool, endpoint);
        endpoint_forget_outliers(pool, endpoint);
        endpoint_reset_history(pool, endpoint);
        endpoint_update_rank(pool, endpoint);
    }
    if (!checked && change->old->spec->health.kind != POOL_HEALTH_NONE) {
        mark_all_ready(pool, change->fresh);
    }
    update_indebted(pool);
    pool_saturation_rebuild(pool, change->old);
    if (change->fresh->spec->outlier_detection.max_ejection_percent == 0) {
        clear_ejections(pool);
    }
    atomic_store_explicit(&pool->generation, change->fresh->generation, memory_order_release);
}

/* Counts the new snapshot's references to its endpoints. */
static void ref_endpoints(const struct pool_snapshot *snapshot) {
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        atomic_fetch_add_explicit(&snapshot->members[i].endpoint->n_snapshots, 1,
                                  memory_order_relaxed);
    }
}

static enum status apply_change(struct pool *pool, struct pool_change *change, struct error *err) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    bool room = ranking_reserve(&pool->ranking, change->fresh->n_members);
    if (room) {
        ref_endpoints(change->fresh);
        publish_snapshot(pool, change);
        pool_notify_after_update(pool, &notifications);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
    if (room) {
        pool_settle_waiters(pool);
    }
    return room ? ST_OK : error_no_memory(err, "a pool of %u endpoints", change->fresh->n_members);
}

/* ---- updates: freeing endpoints -------------------------------------------------------------- */

static bool is_idle(struct pool *pool, const struct endpoint *endpoint) {
    if (atomic_load_explicit(&endpoint->n_snapshots, memory_order_acquire) > 0) {
        return false;
    }
    lock_acquire(&pool->lock);
    bool idle = endpoint_in_flight(endpoint) == 0;
    lock_release(&pool->lock);
    return idle;
}

static void free_idle_endpoints(struct pool *pool, struct pool_change *change) {
    size_t n = 0;
    assert(change->known || change->n_known == 0);
    for (size_t i = 0; i < change->n_known; i++) {
        if (is_idle(pool, change->known[i])) {
            endpoint_free(pool, change->known[i]);
        } else {
            change->known[n++] = change->known[i];
        }
    }
    free(pool->known);
    pool->known = change->known;
    pool->n_known = n;
}

/* Frees the new endpoints, which were never published. */
static void undo_change(const struct pool *pool, struct pool_change *change) {
    size_t k = 0;
    if (change->fresh) {
        session_tables_detach(change->fresh);
    }
    for (size_t i = 0; change->known && i < change->n_known; i++) {
        if (k < pool->n_known && change->known[i] == pool->known[k]) {
            k++;
        } else {
            endpoint_free(pool, change->known[i]);
        }
    }
    free(change->known);
}

enum status pool_update(struct pool *pool, struct pool_spec **spec, struct error *err) {
    lock_acquire(&pool->updating);
    struct pool_change change = {.old = pool->snapshot};
    enum status st = pool_snapshot_new(*spec, change.old->generation + 1, &change.fresh, err);
    if (st == ST_OK) {
        st = prepare_change(pool, &change, err);
    }
    if (st == ST_OK) {
        st = apply_change(pool, &change, err);
    }
    if (st == ST_OK) {
        *spec = NULL;
        pool_snapshot_unref(change.old);
        free_idle_endpoints(pool, &change);
    } else {
        undo_change(pool, &change);
    }
    free(change.moves);
    lock_release(&pool->updating);
    return st;
}

/* ---- tickets --------------------------------------------------------------------------------- */

void pool_release_ticket(struct pool *pool, struct pool_ticket *ticket) {
    struct endpoint *endpoint = ticket->endpoint;
    ticket->endpoint = NULL;
    if (endpoint) {
        struct pool_notifications notifications = {NULL};
        lock_acquire(&pool->lock);
        if (ticket->has_turn) { /* it was never sent */
            flow_end_turn(&pool->flow, ticket->program, clock_now_ns());
            ticket->has_turn = false;
        }
        endpoint_add_tokens(pool, endpoint, -(int64_t)ticket->n_tokens);
        pool_release_capacity(pool, endpoint, ticket->number, &notifications);
        if (endpoint_window_size(endpoint) > 0 && !pool_has_results(pool)) {
            /* That it ends is all that is known of a request. */
            endpoint_grow_window(pool, endpoint);
            pool_notify_waiters(pool, endpoint, &notifications);
        }
        lock_release(&pool->lock); /* the pool may free the endpoint from here on */
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
    endpoint_count_older(to, ticket->number);
    endpoint_add_request(reader->pool, to);
    pool_release_capacity(reader->pool, from, ticket->number, &notifications);
    lock_release(&reader->pool->lock);
    pool_send_notifications(&notifications);
    ticket->endpoint = to;
    return true;
}

/* ---- reports about endpoints ----------------------------------------------------------------- */

void pool_set_ready(struct pool *pool, struct endpoint *endpoint, bool ready) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    if (endpoint->in_pool && pool->snapshot->spec->health.kind != POOL_HEALTH_NONE) {
        endpoint->known = true;
        endpoint->ready = ready;
        if (!ready) {
            endpoint_reset_history(pool, endpoint);
            /* A readiness check that succeeds later is a proof. */
            endpoint_clear_avoided(pool, endpoint);
            endpoint_forget_trials(endpoint);
            endpoint_readmit_kinds(pool, endpoint);
        }
        endpoint_update_rank(pool, endpoint);
        pool_notify_waiters(pool, endpoint, &notifications);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

/* `restarted`: its caches may be empty. */
static void mark_refused(struct pool *pool, struct endpoint *endpoint, bool restarted) {
    uint64_t now_ns = clock_now_ns();
    lock_acquire(&pool->lock);
    if (endpoint_is_eligible(endpoint) && endpoint_avoidance(endpoint) != ENDPOINT_EJECTED) {
        if (restarted) {
            endpoint_reset_history(pool, endpoint);
        }
        endpoint_set_avoided(pool, endpoint, ENDPOINT_CONNECTION_REFUSED, now_ns,
                             now_ns + pool->snapshot->spec->refused_ns);
    }
    lock_release(&pool->lock);
}

void pool_report_refused(struct pool *pool, struct endpoint *endpoint) {
    mark_refused(pool, endpoint, true);
}

bool pool_report_unserved(struct pool_reader *reader, const struct endpoint_address *address) {
    const struct pool_member *member = pool_snapshot_find(pool_reader_refresh(reader), address);
    if (member) {
        mark_refused(reader->pool, member->endpoint, false);
        pool_report_outcome(reader->pool, member->endpoint, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    return member != NULL;
}

/* The usual case, which takes no lock. */
static bool is_none_avoided(const struct pool *pool) {
    return atomic_load_explicit(&pool->next_avoidance_expiry_ns, memory_order_relaxed) ==
           UINT64_MAX;
}

void pool_report_healthy(struct pool *pool, struct endpoint *endpoint, uint64_t begun_ns) {
    if (is_none_avoided(pool)) {
        return;
    }
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    if (endpoint_avoidance(endpoint) == ENDPOINT_EJECTED) {
        endpoint_count_check(endpoint, begun_ns);
        endpoint_try_proved(pool, endpoint, clock_now_ns());
        pool_notify_waiters(pool, endpoint, &notifications);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

void pool_report_answered(struct pool *pool, struct endpoint *endpoint) {
    if (is_none_avoided(pool)) {
        return;
    }
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    if (endpoint_avoidance(endpoint) == ENDPOINT_CONNECTION_REFUSED) {
        endpoint_try_avoided(pool, endpoint);
    }
    pool_notify_waiters(pool, endpoint, &notifications);
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

/* Whether the snapshot's attributes are these. */
static bool has_attributes(const struct pool_snapshot *snapshot, const struct attribute_key *keys,
                           uint32_t n) {
    bool same = snapshot->n_attributes == n;
    for (uint32_t k = 0; k < n && same; k++) {
        same = attribute_key_equal(&snapshot->attribute_keys[k], &keys[k]);
    }
    return same;
}

void pool_set_attributes(struct pool *pool, const struct endpoint *endpoint,
                         const struct attribute_key *keys, uint32_t n,
                         const struct attribute_report *report) {
    lock_acquire(&pool->lock);
    struct pool_snapshot *snapshot = pool->snapshot;
    if (endpoint->in_pool && has_attributes(snapshot, keys, n)) {
        struct attribute_cell *cells = &snapshot->attributes[(size_t)endpoint->member * n];
        for (uint32_t k = 0; k < n; k++) {
            if (report->known >> k & 1) {
                attribute_cell_set(&cells[k], report->until_ns, report->values[k]);
            }
        }
    }
    lock_release(&pool->lock);
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
        endpoint_record_change(pool, snapshot->members[i].endpoint);
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

/* The endpoint is the pool's own; the caller has a read-only view of it. */
void pool_count_scrape_failure(const struct endpoint *endpoint) {
    struct endpoint *own = (struct endpoint *)(uintptr_t)endpoint;
    atomic_fetch_add_explicit(&own->n_scrape_failures, 1, memory_order_relaxed);
}
