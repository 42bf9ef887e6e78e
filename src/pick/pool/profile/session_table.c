/* Places are in groups; a session has its place in one group. A reader may see a place while it is
 * written: `check` is the session's hash combined with the endpoint, so that halves of two writes
 * match no session. */
#include "pick/pool/profile/session_table.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

struct place {
    _Atomic uint64_t check;    /* the hash's upper half, exclusive or the endpoint */
    _Atomic uint64_t endpoint; /* 0: free */
    _Atomic uint64_t used_ns;
};

struct session_table {
    _Atomic uint32_t n_refs;
    uint64_t owner;
    struct hash_key key;
    struct place places[SESSION_TABLE_PLACES];
};

enum { N_GROUPS = SESSION_TABLE_PLACES / SESSION_TABLE_WAYS };

struct session_table *session_table_new(uint64_t owner) {
    struct session_table *table = calloc(1, sizeof(*table)); /* its pages are taken as they fill */
    if (table) {
        atomic_init(&table->n_refs, 1);
        table->owner = owner;
        hash_key_init(&table->key);
    }
    return table;
}

void session_table_ref(struct session_table *table) {
    atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
}

void session_table_unref(struct session_table *table) {
    uint32_t before = atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1) {
        free(table);
    }
}

uint64_t session_table_owner(const struct session_table *table) {
    return table->owner;
}

struct keyed_hash session_table_hash(const struct session_table *table, struct str session) {
    return keyed_hash_of(&table->key, session);
}

static bool is_expired(uint64_t used_ns, uint64_t now_ns, const struct session_expiry *expiry) {
    uint64_t swept_ns = now_ns - now_ns % expiry->sweep_ns;
    return swept_ns > used_ns && swept_ns - used_ns > expiry->ttl_ns;
}

/* Returns: 0: it is not the session's place. */
static uint64_t endpoint_at(const struct place *place, struct keyed_hash session) {
    uint64_t endpoint = atomic_load_explicit(&place->endpoint, memory_order_relaxed);
    uint64_t check = atomic_load_explicit(&place->check, memory_order_relaxed);
    return endpoint != 0 && (check ^ endpoint) == session.high ? endpoint : 0;
}

uint64_t session_table_find(const struct session_table *table, struct keyed_hash session,
                            uint64_t now_ns, const struct session_expiry *expiry) {
    const struct place *group = &table->places[session.low % N_GROUPS * SESSION_TABLE_WAYS];
    for (size_t i = 0; i < SESSION_TABLE_WAYS; i++) {
        uint64_t endpoint = endpoint_at(&group[i], session);
        if (endpoint != 0) {
            uint64_t used_ns = atomic_load_explicit(&group[i].used_ns, memory_order_relaxed);
            return is_expired(used_ns, now_ns, expiry) ? 0 : endpoint;
        }
    }
    return 0;
}

/* The session's place, or the one that it gets: a free one, or that of the session which was not
 * used for the longest time. */
static struct place *place_of(struct session_table *table, struct keyed_hash session) {
    struct place *group = &table->places[session.low % N_GROUPS * SESSION_TABLE_WAYS];
    struct place *oldest = &group[0];
    for (size_t i = 0; i < SESSION_TABLE_WAYS; i++) {
        if (endpoint_at(&group[i], session) != 0) {
            return &group[i];
        }
        if (atomic_load_explicit(&group[i].used_ns, memory_order_relaxed) <
            atomic_load_explicit(&oldest->used_ns, memory_order_relaxed)) {
            oldest = &group[i];
        }
    }
    return oldest;
}

void session_table_bind(struct session_table *table, struct keyed_hash session, uint64_t endpoint,
                        bool moves, uint64_t now_ns, const struct session_expiry *expiry) {
    struct place *place = place_of(table, session);
    uint64_t bound = endpoint_at(place, session);
    uint64_t used_ns = atomic_load_explicit(&place->used_ns, memory_order_relaxed);
    if (bound != 0 && bound != endpoint && !moves && !is_expired(used_ns, now_ns, expiry)) {
        return;
    }
    atomic_store_explicit(&place->used_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&place->check, session.high ^ endpoint, memory_order_relaxed);
    atomic_store_explicit(&place->endpoint, endpoint, memory_order_relaxed);
}
