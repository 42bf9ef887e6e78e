/* The connections of the servers that share a budget, by peer, to find the one that is closed when
 * a new one needs its place: of the peer that has the most, the one that is idle longest; where
 * none is idle, one with an open request that waits for its client. A peer is a host, or a /64 of
 * IPv6, or all clients of Unix sockets.
 *
 * Idle is a connection without an open request: one between requests, one with a head or a TLS
 * handshake that is not complete, one that waits for its peer to close; and one whose client has
 * half-closed and waits for the response. Its worker stores since when it is idle, which takes no
 * lock, so the order in a peer's heap is corrected when it is used: finding a connection takes time
 * for those that were busy since, and a limited number of steps.
 *
 * Sans I/O. Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_CONN_TABLE_H
#define SLUICE_NET_TRANSPORT_CONN_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/event/lock.h"
#include "core/event/timer_heap.h"

enum {
    CONN_TABLE_BUCKETS = 1024,
    /* A peer with at most so many connections loses none that has an open request. */
    CONN_TABLE_KEPT = 4,
    CONN_TABLE_LOOKED = 256, /* that one conn_table_take_left looks at: some 30 us */
};

#define CONN_BUSY UINT64_MAX

struct conn_peer;

/* Embed it in the connection. Zeroed but for idle_since_ns, it is in no table. */
struct conn_entry {
    struct timer_node node; /* in its peer's heap, by a time that is not later than idle_since_ns */
    struct conn_peer *peer; /* NULL: in no table; guarded by the table's lock, as `taken` is */
    bool taken;             /* conn_table_take_idle returned it: another one has its place */
    bool was_waiting;       /* it was taken by conn_table_take_waiting */
    bool had_left;          /* it was taken by conn_table_take_left */
    uint8_t n_tried;        /* how many were taken before it in vain */
    bool called; /* its worker is told so: it must stay until the message has arrived, which
                               clears this */
    /* CONN_BUSY: it has an open request, and its client may send more. Written by the connection's
     * worker. */
    _Atomic uint64_t idle_since_ns;
    /* Since when its open requests wait for the client: for a body or for messages; CONN_BUSY: the
     * server works for one of them. Written by the connection's worker. */
    _Atomic uint64_t waits_since_ns;
    _Atomic int fd; /* for a conn_choose; -1: none. Written by the connection's worker. */
};

struct conn_table {
    struct lock lock;
    bool initialised;
    /* guarded by the lock */
    LIST_HEAD(, conn_peer) buckets[CONN_TABLE_BUCKETS];
    struct timer_heap by_size; /* peers, the one with the most connections first */
};

/* Initialises zeroed memory, once. Thread: that of all servers of the budget, before they
 * listen. */
void conn_table_init(struct conn_table *table);
/* Adds a connection of the peer `host` (address_peer_hash). Where memory is short it is not added,
 * and never found. */
void conn_table_add(struct conn_table *table, struct conn_entry *entry, uint64_t host);
/* The connection is closed. Returns: whether it still has its place: it was not taken. Then it is
 * subtracted from `n_places`, before a search could miss it. */
bool conn_table_remove(struct conn_table *table, struct conn_entry *entry,
                       _Atomic uint64_t *n_places) SLUICE_MUST_USE;
/* Which idle connection is looked for. */
struct conn_search {
    size_t n_kept;          /* of peers with more connections than that */
    uint64_t idle_until_ns; /* idle since then or longer */
};
/* Takes the idle connection that is to be closed out of the table, and sets `taken` and `called`.
 * Returns: NULL when none was found. It may become busy at any time: its worker checks that before
 * it closes it, and adds it again. */
struct conn_entry *conn_table_take_idle(struct conn_table *table, const struct conn_search *search,
                                        uint64_t now_ns);
/* As conn_table_take_idle, a connection whose open requests wait for its client; of a peer that has
 * still more connections than `host` when that one has one more, and more than CONN_TABLE_KEPT. Of
 * many it looks at some. */
struct conn_entry *conn_table_take_waiting(struct conn_table *table, uint64_t host);

/* Returns: the index of a connection whose client has left; `n` when none has. */
typedef size_t conn_choose(struct conn_entry *const *entries, size_t n);
/* As conn_table_take_idle, a busy connection of a peer with more than `n_kept`, whose client has
 * left, which its worker has not read yet. Of many it looks at CONN_TABLE_LOOKED, and at others the
 * next time. */
struct conn_entry *conn_table_take_left(struct conn_table *table, size_t n_kept,
                                        conn_choose *choose);

/* Returns: how many connections the peer has. */
size_t conn_table_count(struct conn_table *table, uint64_t host);

static inline void conn_entry_set_idle(struct conn_entry *entry, uint64_t since_ns) {
    atomic_store_explicit(&entry->idle_since_ns, since_ns, memory_order_release);
}
static inline void conn_entry_set_waiting(struct conn_entry *entry, uint64_t since_ns) {
    atomic_store_explicit(&entry->waits_since_ns, since_ns, memory_order_relaxed);
}
static inline void conn_entry_set_fd(struct conn_entry *entry, int fd) {
    atomic_store_explicit(&entry->fd, fd, memory_order_relaxed);
}
static inline bool conn_entry_is_waiting(const struct conn_entry *entry) {
    return atomic_load_explicit(&entry->waits_since_ns, memory_order_relaxed) != CONN_BUSY;
}
static inline bool conn_entry_is_idle(const struct conn_entry *entry) {
    return atomic_load_explicit(&entry->idle_since_ns, memory_order_relaxed) != CONN_BUSY;
}

#endif
