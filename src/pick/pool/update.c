/* A pool becomes another. All that can fail, and all that takes long, is done before the lock is
 * taken: under it only those endpoints are touched that come or go, and the snapshot is swapped.
 *
 * An endpoint is freed here and nowhere else: when no snapshot has it (so no reader can reach it,
 * and none will, since a snapshot is made only of what is wanted now) and no request is in flight
 * to it (so no ticket has it). One that went and comes back before that is the same endpoint. */
#include <assert.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "pick/pool/state.h"

struct pool_change {
    struct pool_snapshot *old, *fresh;
    struct endpoint **known; /* all there are, with the new ones; sorted */
    size_t n_known;
    struct endpoint **moves; /* first those that go, then those that come */
    size_t n_removed, n_moves;
};

static enum status no_memory(const struct pool_change *change, struct error *err) {
    error_set(err, ST_NO_MEMORY, "no memory for a pool of %u endpoints", change->fresh->n_members);
    return ST_NO_MEMORY;
}

/* ---- what will be different ------------------------------------------------------------------ */

/* Finds or makes the endpoint of each new member. */
static enum status find_or_add_endpoints(const struct pool *pool, struct pool_change *change,
                                         struct error *err) {
    struct pool_member *members = change->fresh->members;
    size_t n_old = pool->n_known, n_new = change->fresh->n_members, i = 0, k = 0, n;
    change->known = checked_add(n_old, n_new, &n) ? calloc(n + 1, sizeof(struct endpoint *)) : NULL;
    if (!change->known) {
        return no_memory(change, err);
    }
    while (i < n_old || k < n_new) {
        int order = k == n_new ? -1
                    : i == n_old
                        ? 1
                        : endpoint_address_compare(&pool->known[i]->address, &members[k].address);
        struct endpoint *next =
            order > 0 ? endpoint_new(pool, &members[k].address) : pool->known[i++];
        if (!next) {
            return no_memory(change, err);
        }
        change->known[change->n_known++] = next;
        if (order >= 0) {
            members[k++].endpoint = next;
        }
    }
    return ST_OK;
}

/* Members by their endpoints' numbers in the table of prompts. */
static enum status index_hosts(struct pool_change *change, struct error *err) {
    struct pool_snapshot *fresh = change->fresh;
    uint32_t first = UINT32_MAX, behind = 0;
    for (uint32_t i = 0; i < fresh->n_members; i++) {
        uint32_t host = fresh->members[i].endpoint->host; /* 0: it has none */
        first = host > 0 && host < first ? host : first;
        behind = host < behind ? behind : host + 1;
    }
    fresh->first_host = first;
    fresh->n_hosts = behind > first ? behind - first : 0;
    fresh->hosts = arena_calloc(fresh->spec->arena, fresh->n_hosts + 1, sizeof(*fresh->hosts));
    if (!fresh->hosts) {
        return no_memory(change, err);
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

/* What those that stay have said of their load. An answer that comes in meanwhile is lost: the next
 * one is not far. */
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
        return no_memory(change, err);
    }
    list_moves(change, change->old, change->fresh);
    change->n_removed = change->n_moves;
    list_moves(change, change->fresh, change->old);
    copy_loads(change);
    return ST_OK;
}

/* ---- the change ------------------------------------------------------------------------------ */

/* Nobody is checked any more: all are ready. */
static void mark_all_ready(struct pool *pool, const struct pool_snapshot *snapshot) {
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        snapshot->members[i].endpoint->known = snapshot->members[i].endpoint->ready = true;
        endpoint_update_rank(pool, snapshot->members[i].endpoint);
    }
}

static void publish_snapshot(struct pool *pool, struct pool_change *change) {
    bool checked = change->fresh->spec->health.kind != POOL_HEALTH_NONE;
    pool->snapshot = change->fresh;
    for (uint32_t i = 0; i < change->fresh->n_members; i++) {
        change->fresh->members[i].endpoint->member = i;
    }
    for (size_t i = 0; i < change->n_moves; i++) {
        struct endpoint *endpoint = change->moves[i];
        bool is_added = i >= change->n_removed;
        assert(endpoint);
        endpoint->in_pool = is_added;
        endpoint->known = endpoint->ready = is_added && !checked;
        endpoint_clear_refused(pool, endpoint);
        endpoint_reset_history(pool, endpoint);
        endpoint_update_rank(pool, endpoint);
    }
    if (!checked && change->old->spec->health.kind != POOL_HEALTH_NONE) {
        mark_all_ready(pool, change->fresh);
    }
    atomic_store_explicit(&pool->generation, change->fresh->generation, memory_order_release);
}

/* From here on the new snapshot's endpoints are held by it. */
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
    return room ? ST_OK : no_memory(change, err);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

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

/* Those that are new have been seen by nobody. */
static void undo_change(const struct pool *pool, struct pool_change *change) {
    size_t k = 0;
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
