/* What all servers of a process share: the memory that clients make it hold, and the number of
 * connections, each with its limit. Zeroed except for the limits; outlives the servers.
 *
 * Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_BUDGET_H
#define SLUICE_NET_TRANSPORT_BUDGET_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/metric/metric.h"
#include "core/base/status.h"
#include "net/transport/conn_table.h"

enum {
    NET_BUDGET_MAX_USERS = 8,
    NET_BUDGET_REFUSALS = 256,
    NET_BUDGET_FIRST_ARENA = 4096,
    NET_BUDGET_SMALL_ARENA = 1 << 18,
    NET_BUDGET_FREE_CONNS = 16, /* so many connections have memory, however small the limit is */
    NET_BUDGET_PAGE_SHARE = 8,  /* pages take at most this part of the limit together */
    NET_BUDGET_FREE_PAGES = 1 << 18, /* so many bytes of pages have memory, likewise */
};

/* While a further page does not fit, a client has so long to read one. */
static const uint64_t NET_PAGE_READ_NS = UINT64_C(5000000000);

/* What bodies are counted as, for the metrics. */
enum net_body_owner {
    NET_BODY_HTTP,
    NET_BODY_GRPC,
    NET_BODY_MIP,
    NET_BODY_SHARED_MEMORY, /* tensors that requests name there */
    NET_BODY_OWNERS,
};

/* What the clients of servers hold. */
struct net_budget_use {
    uint64_t n_response_bytes;      /* reserved for responses */
    uint64_t n_open_call_bytes;     /* of calls as long as they are open, with what they buffer */
    uint64_t n_conn_bytes;          /* of connections as long as they are open */
    uint64_t n_socket_bytes;        /* of their sockets in the kernel */
    uint64_t n_tls_bytes;           /* of TLS sessions, handshakes and incomplete records */
    uint64_t n_buffer_bytes;        /* of input and output that wait on connections */
    uint64_t n_waiting_for_budget;  /* requests that wait for the memory of the process */
    uint64_t n_waiting_for_account; /* requests that wait for that of their connection */
};

/* Registered by a server, or by a cache. Thread: any. */
struct net_budget_user {
    const char *protocol; /* "http"; NULL: no server, `add_use` is not set */
    /* Closes connections that hold responses and do not read them, as long as
     * net_budget_claim_relief has bytes that are wanted. */
    void (*relieve)(struct net_budget_user *user);
    /* Closes connections that hold a page for more than NET_PAGE_READ_NS. NULL: there are none. */
    void (*relieve_pages)(struct net_budget_user *user);
    /* Adds what its clients hold. */
    void (*add_use)(const struct net_budget_user *user, struct net_budget_use *use);
};

struct net_budget {
    uint64_t memory;          /* --client-memory, of everything; 0: no limit:
                                 net_budget_take_within */
    uint64_t kept_memory;     /* of `memory`, kept free by bodies and by all that holds much */
    uint64_t body_memory;     /* --body-memory, of all bodies: net_budget_reserve */
    uint64_t max_connections; /* --max-connections: net_budget_add_conn */
    uint64_t max_refusals; /* connections over max_connections that get an error at a time; further
                              ones are closed at once; and those whose place was taken, before new
                              ones wait until they are closed; 0: NET_BUDGET_REFUSALS */
    /* Everything, the shares' credit included, but for what connections, their buffers and the
     * first bytes of arenas have taken of their extras: once the limit is reached, each kind has
     * its own. */
    _Atomic uint64_t n_bytes;
    _Atomic uint64_t n_conn_extra_bytes;   /* net_budget_take_conn */
    _Atomic uint64_t n_buffer_extra_bytes; /* net_budget_take_buffer */
    _Atomic uint64_t n_arena_extra_bytes;  /* net_budget_take_for_arena */
    _Atomic uint64_t n_body_bytes;
    _Atomic uint64_t n_owner_bytes[NET_BODY_OWNERS]; /* of n_body_bytes */
    _Atomic uint64_t n_picture_bytes;                /* of n_bytes: net_budget_take_picture */
    _Atomic uint64_t n_open_call_bytes;              /* of n_bytes: net_budget_take_open_calls */
    _Atomic uint64_t n_conn_bytes;                   /* net_budget_take_conn */
    _Atomic uint64_t n_socket_bytes; /* in the kernel, for connections: net_budget_hold_socket */
    _Atomic uint64_t n_arena_bytes;  /* of n_bytes: net_budget_count_arenas */
    _Atomic uint64_t n_page_bytes;   /* of n_bytes: net_budget_take_page */
    _Atomic uint64_t n_owner_page_bytes[NET_BODY_OWNERS]; /* of n_page_bytes */
    _Atomic uint64_t n_conns;                             /* that have a place */
    _Atomic uint64_t n_refused;                           /* that are told that there is none */
    _Atomic uint64_t n_leaving; /* whose place another one has, and that are not closed yet */
    _Atomic uint64_t n_opening; /* that have a place, and whose worker has not opened them yet */
    _Atomic uint32_t n_waiting_quotas; /* quotas in which requests wait for memory */
    _Atomic uint64_t n_wanted;         /* bytes that nothing was closed for yet, of all users */
    struct arena_budget arena;         /* of requests: net_budget_count_arenas */
    struct conn_table conns;           /* of which an idle one is closed for a new one */
    struct net_budget_user *_Atomic users[NET_BUDGET_MAX_USERS];
};

/* `user` must outlive the servers, of which there are at most NET_BUDGET_MAX_USERS. */
static inline void net_budget_add_user(struct net_budget *budget, struct net_budget_user *user) {
    bool added = false;
    for (size_t i = 0; i < NET_BUDGET_MAX_USERS && !added; i++) {
        struct net_budget_user *none = NULL;
        added = atomic_compare_exchange_strong(&budget->users[i], &none, user);
    }
    assert(added);
}

static inline void net_budget_remove_user(struct net_budget *budget, struct net_budget_user *user) {
    for (size_t i = 0; i < NET_BUDGET_MAX_USERS; i++) {
        struct net_budget_user *expected = user;
        if (atomic_compare_exchange_strong(&budget->users[i], &expected, NULL)) {
            return;
        }
    }
}

/* Asks all users for memory, which free `wanted` bytes together: users in the order in which they
 * were added, a server's workers at the same time. Called again while requests wait; what is left
 * of an earlier call is contained in `wanted`. */
static inline void net_budget_relieve(struct net_budget *budget, uint64_t wanted) {
    atomic_store_explicit(&budget->n_wanted, wanted, memory_order_relaxed);
    for (size_t i = 0; i < NET_BUDGET_MAX_USERS; i++) {
        struct net_budget_user *user = atomic_load(&budget->users[i]);
        if (user) {
            user->relieve(user);
        }
    }
}

/* Before a user frees `n_bytes`: takes them off what is wanted. Returns: false when nothing is
 * wanted any more. */
static inline bool net_budget_claim_relief(struct net_budget *budget, uint64_t n_bytes) {
    uint64_t wanted = atomic_load_explicit(&budget->n_wanted, memory_order_relaxed), left;
    do {
        left = wanted > n_bytes ? wanted - n_bytes : 0;
    } while (wanted > 0 &&
             !atomic_compare_exchange_weak_explicit(&budget->n_wanted, &wanted, left,
                                                    memory_order_relaxed, memory_order_relaxed));
    return wanted > 0;
}

/* Returns: bytes that are still wanted. */
static inline uint64_t net_budget_wanted(const struct net_budget *budget) {
    return atomic_load_explicit(&budget->n_wanted, memory_order_relaxed);
}

/* Adds what clients of that protocol hold. Returns: whether a server has it. */
static inline bool net_budget_add_use(struct net_budget *budget, const char *protocol,
                                      struct net_budget_use *use) {
    bool found = false;
    for (size_t i = 0; i < NET_BUDGET_MAX_USERS; i++) {
        const struct net_budget_user *user = atomic_load(&budget->users[i]);
        if (user && user->protocol && strcmp(user->protocol, protocol) == 0) {
            user->add_use(user, use);
            found = true;
        }
    }
    return found;
}

static inline uint64_t net_budget_limit(const struct net_budget *budget) {
    return budget->memory > 0 ? budget->memory : UINT64_MAX / 2;
}

/* Returns: the limit for what may not use kept_memory. */
static inline uint64_t net_budget_large_limit(const struct net_budget *budget) {
    return net_budget_limit(budget) - budget->kept_memory;
}

/* Returns: whether only kept_memory is left. */
static inline bool net_budget_is_tight(const struct net_budget *budget) {
    return atomic_load_explicit(&budget->n_bytes, memory_order_relaxed) >=
           net_budget_large_limit(budget);
}

/* Takes `n_bytes`, where all that is taken stays within `limit`. Returns: false when they don't
 * fit; nothing is taken then. */
static inline bool net_budget_take_within(struct net_budget *budget, uint64_t n_bytes,
                                          uint64_t limit) {
    uint64_t used = atomic_fetch_add_explicit(&budget->n_bytes, n_bytes, memory_order_relaxed);
    if (used <= limit && n_bytes <= limit - used) {
        return true;
    }
    atomic_fetch_sub_explicit(&budget->n_bytes, n_bytes, memory_order_relaxed);
    return false;
}

/* As net_budget_take_within, for memory that is in use already. */
static inline void net_budget_force(struct net_budget *budget, uint64_t n_bytes) {
    atomic_fetch_add_explicit(&budget->n_bytes, n_bytes, memory_order_relaxed);
}

static inline void net_budget_give(struct net_budget *budget, uint64_t n_bytes) {
    atomic_fetch_sub_explicit(&budget->n_bytes, n_bytes, memory_order_relaxed);
}

/* Returns: what the kernel may hold for connections besides the limit. */
static inline uint64_t net_budget_socket_extra(const struct net_budget *budget) {
    return net_budget_limit(budget) / 8;
}

static inline uint64_t net_budget_sockets_counted(const struct net_budget *budget,
                                                  uint64_t n_bytes) {
    uint64_t extra = net_budget_socket_extra(budget);
    return n_bytes > extra ? n_bytes - extra : 0;
}

/* Returns: the limit for small requests and connections themselves, before their extras. Unlike
 * large ones they are not refused for what the kernel holds of others' answers, which nothing can
 * take back at once. */
static inline uint64_t net_budget_small_limit(const struct net_budget *budget) {
    uint64_t sockets = atomic_load_explicit(&budget->n_socket_bytes, memory_order_relaxed);
    return net_budget_limit(budget) + net_budget_sockets_counted(budget, sockets);
}

/* Returns: what small requests may use beyond the limit, whatever their connections hold. */
static inline uint64_t net_budget_small_extra(const struct net_budget *budget) {
    return net_budget_limit(budget) / 32;
}

/* ---- extras, which one kind has once the limit is reached ------------------------------------ */

/* Takes `n_bytes` of a part that has `most` bytes. Returns: false when they don't fit; nothing is
 * taken then. */
static inline bool net_budget_take_part(_Atomic uint64_t *part, uint64_t n_bytes, uint64_t most) {
    uint64_t used = atomic_fetch_add_explicit(part, n_bytes, memory_order_relaxed);
    if (used <= most && n_bytes <= most - used) {
        return true;
    }
    atomic_fetch_sub_explicit(part, n_bytes, memory_order_relaxed);
    return false;
}

/* Gives back memory of a kind that has an extra: first of the extra, whatever it was taken of. */
static inline void net_budget_give_with_extra(struct net_budget *budget, _Atomic uint64_t *extra,
                                              uint64_t n_bytes) {
    uint64_t used = atomic_load_explicit(extra, memory_order_relaxed), taken;
    do {
        taken = used < n_bytes ? used : n_bytes;
    } while (taken > 0 &&
             !atomic_compare_exchange_weak_explicit(extra, &used, used - taken,
                                                    memory_order_relaxed, memory_order_relaxed));
    net_budget_give(budget, n_bytes - taken);
}

/* For memory that is in use already: what does not fit into `limit` counts in the extra, beyond
 * its size if need be. So it leaves other kinds their extras. */
static inline void net_budget_force_with_extra(struct net_budget *budget, _Atomic uint64_t *extra,
                                               uint64_t n_bytes, uint64_t limit) {
    if (!net_budget_take_within(budget, n_bytes, limit)) {
        atomic_fetch_add_explicit(extra, n_bytes, memory_order_relaxed);
    }
}

/* Returns: the extra of connections. Those of peers with few may use twice as much. */
static inline uint64_t net_budget_conn_extra(const struct net_budget *budget) {
    return net_budget_limit(budget) / 16;
}

/* Takes memory of a buffer of a connection, beyond the limit of an extra of `extra` bytes. Returns:
 * false when it doesn't fit; nothing is taken then. */
static inline bool net_budget_take_buffer(struct net_budget *budget, uint64_t n_bytes,
                                          uint64_t extra) {
    return net_budget_take_within(budget, n_bytes, net_budget_limit(budget)) ||
           net_budget_take_part(&budget->n_buffer_extra_bytes, n_bytes, extra);
}

/* As net_budget_take_buffer, for memory that is in use already. */
static inline void net_budget_force_buffer(struct net_budget *budget, uint64_t n_bytes) {
    net_budget_force_with_extra(budget, &budget->n_buffer_extra_bytes, n_bytes,
                                net_budget_limit(budget));
}

static inline void net_budget_give_buffer(struct net_budget *budget, uint64_t n_bytes) {
    net_budget_give_with_extra(budget, &budget->n_buffer_extra_bytes, n_bytes);
}

/* Small arenas, such as that of a metrics page, may use kept_memory and a 32nd more. The first
 * bytes that count of each have another 32nd for themselves: a request takes them before it waits
 * for its response's memory, and is not refused where it may wait. */
static inline bool net_budget_take_for_arena(void *user, size_t n_bytes, size_t n_counted) {
    struct net_budget *budget = user;
    size_t after = n_counted + n_bytes;
    uint64_t extra = net_budget_small_extra(budget);
    uint64_t limit = after <= NET_BUDGET_SMALL_ARENA ? net_budget_small_limit(budget) + extra
                                                     : net_budget_large_limit(budget);
    if (!net_budget_take_within(budget, n_bytes, limit) &&
        !(after <= NET_BUDGET_FIRST_ARENA &&
          net_budget_take_part(&budget->n_arena_extra_bytes, n_bytes, extra))) {
        return false;
    }
    atomic_fetch_add_explicit(&budget->n_arena_bytes, n_bytes, memory_order_relaxed);
    return true;
}

static inline void net_budget_give_from_arena(void *user, size_t n_bytes) {
    struct net_budget *budget = user;
    atomic_fetch_sub_explicit(&budget->n_arena_bytes, n_bytes, memory_order_relaxed);
    net_budget_give_with_extra(budget, &budget->n_arena_extra_bytes, n_bytes);
}

/* From now on the arenas of requests count, which hold what was decoded of them: arena_set_budget
 * with `arena`. `n_uncounted`: of each arena, contained in what its connection or call counts. */
static inline void net_budget_count_arenas(struct net_budget *budget, size_t n_uncounted) {
    budget->arena = (struct arena_budget){net_budget_take_for_arena, net_budget_give_from_arena,
                                          budget, n_uncounted};
}

/* Returns: what all pages may take together. */
static inline uint64_t net_budget_page_limit(const struct net_budget *budget) {
    return net_budget_limit(budget) / NET_BUDGET_PAGE_SHARE;
}

/* Takes memory of a page, until no response holds it: a page that several responses share is taken
 * once. Pages take at most an NET_BUDGET_PAGE_SHARE-th of the limit together, so that unread pages
 * leave the rest to requests. NET_BUDGET_FREE_PAGES bytes of them are there in any case, so that
 * metrics can be read while memory is short, and a page that is alone may be larger than that part.
 * Returns: false when it doesn't fit; nothing is taken then. */
static inline bool net_budget_take_page(struct net_budget *budget, enum net_body_owner owner,
                                        uint64_t n_bytes) {
    uint64_t used = atomic_fetch_add_explicit(&budget->n_page_bytes, n_bytes, memory_order_relaxed);
    uint64_t after = used + n_bytes;
    if (after <= NET_BUDGET_FREE_PAGES) {
        net_budget_force(budget, n_bytes);
    } else if ((used > 0 && after > net_budget_page_limit(budget)) ||
               !net_budget_take_within(budget, n_bytes, net_budget_large_limit(budget))) {
        atomic_fetch_sub_explicit(&budget->n_page_bytes, n_bytes, memory_order_relaxed);
        return false;
    }
    atomic_fetch_add_explicit(&budget->n_owner_page_bytes[owner], n_bytes, memory_order_relaxed);
    return true;
}

/* A page did not fit: connections that hold pages for long are closed. */
static inline void net_budget_relieve_pages(struct net_budget *budget) {
    for (size_t i = 0; i < NET_BUDGET_MAX_USERS; i++) {
        struct net_budget_user *user = atomic_load(&budget->users[i]);
        if (user && user->relieve_pages) {
            user->relieve_pages(user);
        }
    }
}

static inline void net_budget_give_page(struct net_budget *budget, enum net_body_owner owner,
                                        uint64_t n_bytes) {
    atomic_fetch_sub_explicit(&budget->n_owner_page_bytes[owner], n_bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&budget->n_page_bytes, n_bytes, memory_order_relaxed);
    net_budget_give(budget, n_bytes);
}

/* Returns: whether `n_bytes` of a body fit now. */
static inline bool net_budget_fits(const struct net_budget *budget, uint64_t n_bytes) {
    uint64_t bodies = atomic_load_explicit(&budget->n_body_bytes, memory_order_relaxed);
    uint64_t all = atomic_load_explicit(&budget->n_bytes, memory_order_relaxed);
    return bodies <= budget->body_memory && n_bytes <= budget->body_memory - bodies &&
           all <= net_budget_large_limit(budget) && n_bytes <= net_budget_large_limit(budget) - all;
}

/* Reserves memory for a body. Returns: false when it doesn't fit; nothing is reserved then. */
static inline bool net_budget_reserve(struct net_budget *budget, enum net_body_owner owner,
                                      uint64_t n_bytes) {
    uint64_t used = atomic_fetch_add_explicit(&budget->n_body_bytes, n_bytes, memory_order_relaxed);
    if (used <= budget->body_memory && n_bytes <= budget->body_memory - used &&
        net_budget_take_within(budget, n_bytes, net_budget_large_limit(budget))) {
        atomic_fetch_add_explicit(&budget->n_owner_bytes[owner], n_bytes, memory_order_relaxed);
        return true;
    }
    atomic_fetch_sub_explicit(&budget->n_body_bytes, n_bytes, memory_order_relaxed);
    return false;
}

static inline void net_budget_release(struct net_budget *budget, enum net_body_owner owner,
                                      uint64_t n_bytes) {
    atomic_fetch_sub_explicit(&budget->n_owner_bytes[owner], n_bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&budget->n_body_bytes, n_bytes, memory_order_relaxed);
    net_budget_give(budget, n_bytes);
}

/* Returns: what all open calls may take together. */
static inline uint64_t net_budget_open_call_limit(const struct net_budget *budget) {
    return net_budget_limit(budget) / 4;
}

/* Returns: what all connections may take together. */
static inline uint64_t net_budget_conn_limit(const struct net_budget *budget) {
    return net_budget_limit(budget) / 2;
}

/* Open calls take at most a quarter of the limit together, as clients keep them open as long as
 * they like; what they buffer and their responses are not contained in it. The caller takes
 * `n_bytes` of the budget, too. Returns: false when they don't fit; nothing is counted then. */
static inline bool net_budget_take_open_calls(struct net_budget *budget, uint64_t n_bytes) {
    uint64_t limit = net_budget_open_call_limit(budget);
    uint64_t used =
        atomic_fetch_add_explicit(&budget->n_open_call_bytes, n_bytes, memory_order_relaxed);
    if (used <= limit && n_bytes <= limit - used) {
        return true;
    }
    atomic_fetch_sub_explicit(&budget->n_open_call_bytes, n_bytes, memory_order_relaxed);
    return false;
}

static inline void net_budget_give_open_calls(struct net_budget *budget, uint64_t n_bytes) {
    atomic_fetch_sub_explicit(&budget->n_open_call_bytes, n_bytes, memory_order_relaxed);
}

/* Takes memory of a decoder of pictures; `user` is the budget. Returns: false when it doesn't
 * fit. */
static inline bool net_budget_take_picture(void *user, uint64_t n_bytes) {
    struct net_budget *budget = user;
    if (!net_budget_take_within(budget, n_bytes, net_budget_large_limit(budget))) {
        return false;
    }
    atomic_fetch_add_explicit(&budget->n_picture_bytes, n_bytes, memory_order_relaxed);
    return true;
}

static inline void net_budget_give_picture(void *user, uint64_t n_bytes) {
    struct net_budget *budget = user;
    atomic_fetch_sub_explicit(&budget->n_picture_bytes, n_bytes, memory_order_relaxed);
    net_budget_give(budget, n_bytes);
}

/* Returns: whether a client that took `n_bytes` of its response in `elapsed_ns` reads it. */
static inline bool net_write_is_fast_enough(uint64_t n_bytes, uint64_t min_rate,
                                            uint64_t elapsed_ns) {
    return n_bytes > 0 && (double)n_bytes >= (double)min_rate * ((double)elapsed_ns / 1e9);
}

/* Fails a request with ST_OVERLOADED, after net_budget_reserve or _fits: counts it, and names the
 * limit that has less left. */
static inline enum status net_budget_error(const struct net_budget *budget, struct error *err) {
    uint64_t bodies = atomic_load_explicit(&budget->n_body_bytes, memory_order_relaxed);
    uint64_t all = atomic_load_explicit(&budget->n_bytes, memory_order_relaxed);
    uint64_t limit = net_budget_large_limit(budget);
    metric_add(METRIC_DROPPED_MEMORY, 1);
    if (all >= limit ||
        (bodies < budget->body_memory && limit - all < budget->body_memory - bodies)) {
        return error_set(err, ST_OVERLOADED,
                         "the requests and responses in flight use up all %llu bytes of "
                         "--client-memory",
                         (unsigned long long)net_budget_limit(budget));
    }
    return error_set(err, ST_OVERLOADED,
                     "the bodies in flight use up all %llu bytes of --body-memory",
                     (unsigned long long)budget->body_memory);
}
/* Fails a request with ST_OVERLOADED, after net_budget_take_page: counts it, and says which limit
 * is reached. */
static inline enum status net_budget_page_error(const struct net_budget *budget,
                                                struct error *err) {
    uint64_t limit = net_budget_page_limit(budget);
    if (atomic_load_explicit(&budget->n_page_bytes, memory_order_relaxed) <= limit / 2) {
        return net_budget_error(budget, err);
    }
    metric_add(METRIC_DROPPED_MEMORY, 1);
    return error_set(err, ST_OVERLOADED,
                     "pages that clients have not read yet, such as metrics and lists of models, "
                     "use up their part of --client-memory (%llu of %llu bytes)",
                     (unsigned long long)limit, (unsigned long long)net_budget_limit(budget));
}

/* Takes memory that a connection holds as long as it is open: with that of all others at most half
 * of the limit, and where other memory has used that up, of net_budget_conn_extra. Returns: false
 * when it doesn't fit; nothing is taken then. */
static inline bool net_budget_take_conn(struct net_budget *budget, uint64_t n_bytes) {
    if (!net_budget_take_part(&budget->n_conn_bytes, n_bytes, net_budget_conn_limit(budget))) {
        return false;
    }
    if (net_budget_take_within(budget, n_bytes, net_budget_small_limit(budget)) ||
        net_budget_take_part(&budget->n_conn_extra_bytes, n_bytes, net_budget_conn_extra(budget))) {
        return true;
    }
    atomic_fetch_sub_explicit(&budget->n_conn_bytes, n_bytes, memory_order_relaxed);
    return false;
}

/* As net_budget_take_conn, for memory that is in use already. */
static inline void net_budget_force_conn(struct net_budget *budget, uint64_t n_bytes) {
    atomic_fetch_add_explicit(&budget->n_conn_bytes, n_bytes, memory_order_relaxed);
    net_budget_force_with_extra(budget, &budget->n_conn_extra_bytes, n_bytes,
                                net_budget_small_limit(budget));
}

static inline void net_budget_give_conn(struct net_budget *budget, uint64_t n_bytes) {
    atomic_fetch_sub_explicit(&budget->n_conn_bytes, n_bytes, memory_order_relaxed);
    net_budget_give_with_extra(budget, &budget->n_conn_extra_bytes, n_bytes);
}

/* Counts what the kernel holds for connections: beyond an eighth of the limit against it, so that
 * answers on their way to clients that read leave requests what they had. */
static inline void net_budget_hold_socket(struct net_budget *budget, uint64_t n_bytes) {
    uint64_t old =
        atomic_fetch_add_explicit(&budget->n_socket_bytes, n_bytes, memory_order_relaxed);
    net_budget_force(budget, net_budget_sockets_counted(budget, old + n_bytes) -
                                 net_budget_sockets_counted(budget, old));
}

static inline void net_budget_give_socket(struct net_budget *budget, uint64_t n_bytes) {
    uint64_t old =
        atomic_fetch_sub_explicit(&budget->n_socket_bytes, n_bytes, memory_order_relaxed);
    net_budget_give(budget, net_budget_sockets_counted(budget, old) -
                                net_budget_sockets_counted(budget, old - n_bytes));
}

/* Gives the connection a place, even over the limit, until net_budget_remove_conn. Returns: the
 * number of connections over the limit. */
static inline uint64_t net_budget_add_conn(struct net_budget *budget) {
    uint64_t n = atomic_fetch_add_explicit(&budget->n_conns, 1, memory_order_relaxed) + 1;
    return n > budget->max_connections ? n - budget->max_connections : 0;
}

static inline void net_budget_remove_conn(struct net_budget *budget) {
    atomic_fetch_sub_explicit(&budget->n_conns, 1, memory_order_relaxed);
}

static inline uint64_t net_budget_max_refusals(const struct net_budget *budget) {
    return budget->max_refusals > 0 ? budget->max_refusals : NET_BUDGET_REFUSALS;
}

static inline void net_budget_add_refused(struct net_budget *budget) {
    atomic_fetch_add_explicit(&budget->n_refused, 1, memory_order_relaxed);
}

static inline void net_budget_remove_refused(struct net_budget *budget) {
    atomic_fetch_sub_explicit(&budget->n_refused, 1, memory_order_relaxed);
}

#endif
