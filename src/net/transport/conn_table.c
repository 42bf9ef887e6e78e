/* A hash table of peers, a heap of them by their number of connections, and in each peer a heap of
 * its connections. The memory is freed with the last connection. */
#include "net/transport/conn_table.h"

#include <stdlib.h>

#include "core/base/compiler.h"

struct conn_peer {
    LIST_ENTRY(conn_peer) link;
    uint64_t host;
    struct timer_heap conns;
    struct timer_node rank; /* in by_size */
    size_t next_looked;     /* the connection where conn_table_take_left goes on */
};

/* One search: connections whose time is corrected, and peers without an idle one. */
enum { MAX_STEPS = 512, MAX_PEERS = 32 };

/* Peers in the order of a search, out of `by_size` until passed_restore. */
struct passed {
    struct conn_peer *peers[MAX_PEERS];
    size_t n;
};

void conn_table_init(struct conn_table *table) {
    if (!table->initialised) {
        lock_init(&table->lock);
        table->initialised = true;
    }
}

/* Returns: NULL when it has no connection. */
static struct conn_peer *find_peer(struct conn_table *table, uint64_t host) {
    struct conn_peer *peer;
    LIST_FOREACH(peer, &table->buckets[host % CONN_TABLE_BUCKETS], link) {
        if (peer->host == host) {
            return peer;
        }
    }
    return NULL;
}

/* Returns: NULL when out of memory. */
static struct conn_peer *find_or_add_peer(struct conn_table *table, uint64_t host) {
    struct conn_peer *peer = find_peer(table, host);
    if (peer) {
        return peer;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer) {
        peer->host = host;
        LIST_INSERT_HEAD(&table->buckets[host % CONN_TABLE_BUCKETS], peer, link);
    }
    return peer;
}

/* The number of its connections has changed. Returns: false when out of memory. */
static bool update_rank(struct conn_table *table, struct conn_peer *peer) {
    return timer_heap_set(&table->by_size, &peer->rank, UINT64_MAX - peer->conns.n);
}

static void free_if_empty(struct conn_table *table, struct conn_peer *peer) {
    if (peer->conns.n > 0) {
        return;
    }
    timer_heap_remove(&table->by_size, &peer->rank);
    LIST_REMOVE(peer, link);
    timer_heap_fini(&peer->conns);
    free(peer);
    if (table->by_size.n == 0) {
        timer_heap_fini(&table->by_size);
    }
}

static void remove_entry(struct conn_table *table, struct conn_entry *entry) {
    struct conn_peer *peer = entry->peer;
    timer_heap_remove(&peer->conns, &entry->node);
    entry->peer = NULL;
    if (peer->rank.heap_index > 0) {
        update_rank(table, peer);
    }
    free_if_empty(table, peer);
}

void conn_table_add(struct conn_table *table, struct conn_entry *entry, uint64_t host) {
    lock_acquire(&table->lock);
    struct conn_peer *peer = find_or_add_peer(table, host);
    entry->taken = entry->called = entry->was_waiting = entry->had_left = false;
    if (peer && timer_heap_set(&peer->conns, &entry->node, 0)) {
        entry->peer = peer;
    }
    if (peer && (!entry->peer || !update_rank(table, peer))) {
        if (entry->peer) {
            remove_entry(table, entry);
        } else {
            free_if_empty(table, peer);
        }
    }
    lock_release(&table->lock);
}

bool conn_table_remove(struct conn_table *table, struct conn_entry *entry,
                       _Atomic uint64_t *n_places) {
    lock_acquire(&table->lock);
    bool has_place = !entry->taken;
    if (has_place) {
        atomic_fetch_sub_explicit(n_places, 1, memory_order_relaxed);
    }
    if (entry->peer) {
        remove_entry(table, entry);
    }
    lock_release(&table->lock);
    return has_place;
}

/* Returns: the connection of the peer that is idle longest; NULL when none is, or the steps are
 * used up. */
static struct conn_entry *find_idle(struct conn_peer *peer, uint64_t now_ns, size_t *n_steps) {
    while (*n_steps > 0) {
        struct timer_node *node = timer_heap_pop_due(&peer->conns, UINT64_MAX);
        struct conn_entry *entry = CONTAINER_OF(node, struct conn_entry, node);
        uint64_t since_ns = atomic_load_explicit(&entry->idle_since_ns, memory_order_acquire);
        uint64_t known_ns = node->due_ns;
        (*n_steps)--;
        /* A busy one is not idle before now. The array has room for it. */
        bool kept = timer_heap_set(&peer->conns, node, since_ns < now_ns ? since_ns : now_ns);
        if (kept && since_ns <= known_ns) {
            return entry;
        }
        if (known_ns >= now_ns) {
            return NULL; /* all others were busy since, too */
        }
    }
    return NULL;
}

/* Returns: the peer with the most connections of those that were not passed; NULL: none has more
 * than `n_kept`. */
static struct conn_peer *pass_peer(struct conn_table *table, struct passed *passed, size_t n_kept) {
    struct timer_node *rank =
        passed->n < MAX_PEERS ? timer_heap_pop_due(&table->by_size, UINT64_MAX) : NULL;
    if (!rank) {
        return NULL;
    }
    struct conn_peer *peer = CONTAINER_OF(rank, struct conn_peer, rank);
    passed->peers[passed->n++] = peer;
    return peer->conns.n > n_kept ? peer : NULL;
}

static void take(struct conn_table *table, struct passed *passed, struct conn_entry *found) {
    for (size_t i = 0; i < passed->n; i++) {
        update_rank(table, passed->peers[i]); /* the array has room for it */
    }
    if (found) {
        remove_entry(table, found);
        found->taken = found->called = true;
    }
}

struct conn_entry *conn_table_take_idle(struct conn_table *table, const struct conn_search *search,
                                        uint64_t now_ns) {
    struct passed passed = {.n = 0};
    struct conn_entry *found = NULL;
    struct conn_peer *peer;
    size_t n_steps = MAX_STEPS;
    lock_acquire(&table->lock);
    while (!found && n_steps > 0 && (peer = pass_peer(table, &passed, search->n_kept))) {
        found = find_idle(peer, now_ns, &n_steps);
        if (found && found->node.due_ns > search->idle_until_ns) {
            found = NULL;
        }
    }
    take(table, &passed, found);
    lock_release(&table->lock);
    return found;
}

/* Returns: of its first connections that the steps allow, the one that waits longest; NULL: none
 * does. */
static struct conn_entry *find_waiting(struct conn_peer *peer, size_t *n_steps) {
    struct conn_entry *found = NULL;
    uint64_t found_ns = CONN_BUSY;
    for (size_t i = 0; i<peer->conns.n && * n_steps> 0; i++) {
        struct conn_entry *entry = CONTAINER_OF(peer->conns.nodes[i], struct conn_entry, node);
        uint64_t since_ns = atomic_load_explicit(&entry->waits_since_ns, memory_order_relaxed);
        if (since_ns < found_ns) {
            found = entry;
            found_ns = since_ns;
        }
        (*n_steps)--;
    }
    return found;
}

struct conn_entry *conn_table_take_waiting(struct conn_table *table, uint64_t host) {
    struct passed passed = {.n = 0};
    struct conn_entry *found = NULL;
    size_t n_steps = MAX_STEPS;
    lock_acquire(&table->lock);
    struct conn_peer *peer = find_peer(table, host);
    size_t n_kept = peer ? peer->conns.n + 1 : 1;
    n_kept = n_kept > CONN_TABLE_KEPT ? n_kept : CONN_TABLE_KEPT;
    while (!found && n_steps > 0 && (peer = pass_peer(table, &passed, n_kept))) {
        found = find_waiting(peer, &n_steps);
    }
    take(table, &passed, found);
    if (found) {
        found->was_waiting = true;
    }
    lock_release(&table->lock);
    return found;
}

/* Returns: NULL when none of those that the steps allow was chosen. */
static struct conn_entry *find_left(struct conn_peer *peer, conn_choose *choose, size_t *n_steps) {
    struct conn_entry *entries[CONN_TABLE_LOOKED];
    size_t n = peer->conns.n < *n_steps ? peer->conns.n : *n_steps;
    size_t first = peer->next_looked % peer->conns.n;
    for (size_t i = 0; i < n; i++) {
        struct timer_node *node = peer->conns.nodes[(first + i) % peer->conns.n];
        entries[i] = CONTAINER_OF(node, struct conn_entry, node);
    }
    size_t chosen = choose(entries, n);
    peer->next_looked = first + (chosen < n ? chosen : n);
    *n_steps -= n;
    return chosen < n ? entries[chosen] : NULL;
}

struct conn_entry *conn_table_take_left(struct conn_table *table, size_t n_kept,
                                        conn_choose *choose) {
    struct passed passed = {.n = 0};
    struct conn_entry *found = NULL;
    struct conn_peer *peer;
    size_t n_steps = CONN_TABLE_LOOKED;
    lock_acquire(&table->lock);
    while (!found && n_steps > 0 && (peer = pass_peer(table, &passed, n_kept))) {
        found = find_left(peer, choose, &n_steps);
    }
    take(table, &passed, found);
    if (found) {
        found->had_left = true;
    }
    lock_release(&table->lock);
    return found;
}

size_t conn_table_count(struct conn_table *table, uint64_t host) {
    lock_acquire(&table->lock);
    const struct conn_peer *peer = find_peer(table, host);
    size_t n = peer ? peer->conns.n : 0;
    lock_release(&table->lock);
    return n;
}
