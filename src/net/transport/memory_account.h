/* The memory that responses take until they are sent, by connection. A request reserves the size of
 * its response before it runs: of its connection's account, so that a client that does not read
 * stops being served, and of the process's budget. Where one of them has no space, the request
 * waits; after MEMORY_WAIT_NS without space in the budget it is refused.
 *
 * Each worker of each server has a quota of the budget, which takes credit from it in chunks: a
 * reservation seldom touches what other workers use. Where requests wait in several quotas, each
 * tries again at random times and takes a little at a time, so that none takes all that becomes
 * free.
 *
 * Back pressure: requests that wait for the account of their connection wait for its client; those
 * that wait for the budget wait for all clients, and the connections that read nothing are
 * closed for them (memory_quota_options.relieve).
 *
 * Sans I/O. Thread: the quota's worker, unless stated otherwise. */
#ifndef SLUICE_NET_TRANSPORT_MEMORY_ACCOUNT_H
#define SLUICE_NET_TRANSPORT_MEMORY_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/base/random.h"
#include "net/transport/budget.h"
#include "net/transport/peer.h"

enum {
    OPEN_CALL_SHARE = 4, /* memory_open_call_add */
    /* A response of at most this size need not wait for the budget while large ones do: it may use
     * up to a sixteenth more, and the less of it the more its connection holds. */
    MEMORY_SMALL_BYTES = 65536,
};

static const uint64_t MEMORY_WAIT_NS = UINT64_C(5000000000);
static const uint64_t MEMORY_LONG_NS = UINT64_C(1000000000);
static const uint64_t MEMORY_RETRY_NS = UINT64_C(50000000);
/* As MEMORY_RETRY_NS, once connections are being closed for what waits. */
static const uint64_t MEMORY_RELIEVED_NS = UINT64_C(5000000);

struct memory_account;
struct memory_reservation;
TAILQ_HEAD(memory_reservation_list, memory_reservation);

/* Requests that wait for the budget; the last list goes first. What one of an earlier list waits
 * for does not hold those of a later one: small responses pass large ones. */
enum memory_waiting {
    MEMORY_WAITING_LARGE,        /* of clients that have read no response yet */
    MEMORY_WAITING_LARGE_READER, /* of clients that have */
    MEMORY_WAITING_SMALL,
    MEMORY_WAITING_SMALL_READER,
    MEMORY_WAITING_LISTS,
};

struct memory_quota_options {
    struct net_budget *budget;
    uint64_t max_unsent_size; /* of one account, 0: no limit; a single response may be larger */
    uint64_t (*now_ns)(void);
    /* Calls memory_quota_run at that time or earlier; 0: at the end of the event-loop iteration. */
    void (*schedule)(void *user, uint64_t due_ns);
    /* Requests wait for `wanted` bytes of the budget: closes connections that hold responses and do
     * not read them, on all workers. Called at most every MEMORY_RETRY_NS. */
    void (*relieve)(void *user, uint64_t wanted);
    void *user;
};

/* What a connection holds besides responses, bodies and calls: memory_conn_add. */
enum memory_conn_kind {
    MEMORY_CONN_BASE,    /* its struct, its HTTP/2 session, its first call */
    MEMORY_CONN_TLS,     /* the session or its handshake, and an incomplete record */
    MEMORY_CONN_STATE,   /* what its client adds to its HTTP/2 session: tables of HPACK */
    MEMORY_CONN_BUFFERS, /* input that waits for a response, and copies that wait for the socket */
    MEMORY_CONN_SOCKET,  /* the same in the kernel: socket_memory.h */
    MEMORY_CONN_KINDS,
};

/* A worker's quota, of one server. */
struct memory_quota {
    struct memory_quota_options options;
    uint64_t n_credit;           /* of the budget, not reserved */
    uint64_t n_open_call_credit; /* of the quarter for open calls, not taken by one */
    uint64_t max_credit;         /* more is given back; of that for open calls a quarter of it */
    /* Written by the worker, read by any thread. */
    _Atomic uint64_t n_bytes;          /* reserved, and of open calls */
    _Atomic uint64_t n_overhead_bytes; /* of these, of open calls: struct memory_overhead */
    _Atomic uint64_t n_conn_bytes[MEMORY_CONN_KINDS];
    _Atomic uint64_t n_waiting_for_budget;  /* requests */
    _Atomic uint64_t n_waiting_for_account; /* requests, of all accounts and orders */
    struct memory_reservation_list waiting[MEMORY_WAITING_LISTS];
    struct memory_reservation_list refused; /* within memory_quota_run */
    bool newest_first;                      /* some have waited for MEMORY_LONG_NS */
    bool is_waiting;                        /* counted in budget->n_waiting_quotas */
    uint64_t relief_due_ns;                 /* when `relieve` may be called again */
    struct prng prng;                       /* for the times of retries */
    LIST_HEAD(, memory_account) ready;      /* accounts with space for requests that wait */
    bool scheduled;
};

/* A connection's account. */
struct memory_account {
    struct memory_quota *quota;
    uint64_t n_bytes;           /* reserved, or waiting for the budget */
    uint64_t n_waiting_bytes;   /* of these, waiting for the budget */
    uint64_t n_overhead_bytes;  /* struct memory_overhead */
    uint64_t n_open_call_bytes; /* of these, by memory_open_call_add */
    uint64_t n_conn_bytes[MEMORY_CONN_KINDS];
    uint64_t n_page_bytes;                  /* memory_page_hold */
    uint64_t pages_since_ns;                /* since when it holds pages, if it does */
    size_t n_reservations;                  /* and overheads, and pages */
    struct memory_reservation_list waiting; /* for this account, in order */
    LIST_ENTRY(memory_account) ready_link;
    struct net_peer *peer; /* a reference; NULL: no client */
    bool is_ready;
    bool closed; /* freed with its last reservation */
};

enum memory_reservation_state {
    MEMORY_NONE,
    MEMORY_WAITS_FOR_ORDER,
    MEMORY_WAITS_FOR_ACCOUNT,
    MEMORY_WAITS_FOR_BUDGET,
    MEMORY_IS_REFUSED, /* within memory_quota_run */
    MEMORY_RESERVED,
};

/* Requests that must run in the order in which they come, such as those of a stream, which may
 * belong to a sequence: while one waits, those after it wait, too. Must live as long as one
 * waits. */
struct reservation_order {
    struct memory_reservation *first;       /* waits for account or budget; NULL: none waits */
    struct memory_reservation_list waiting; /* after it */
};

static inline void reservation_order_init(struct reservation_order *order) {
    order->first = NULL;
    TAILQ_INIT(&order->waiting);
}

/* The response of one request. Zeroed, it holds nothing. */
struct memory_reservation {
    struct memory_account *account;
    struct reservation_order *order;      /* NULL: none */
    TAILQ_ENTRY(memory_reservation) link; /* while it waits */
    uint64_t n_bytes;                     /* reserved or waited for */
    uint64_t until_ns;                    /* it waits for the budget until then */
    uint8_t state;                        /* enum memory_reservation_state */
    uint8_t waiting;                      /* enum memory_waiting, while it waits for the budget */
    bool is_inner; /* another request of the account waits for this one: it does not wait for the
                      account. Set by the caller, before memory_reserve */
    /* It has waited: `reserved` tells whether it has the memory now. Called by memory_quota_run. */
    void (*done)(struct memory_reservation *reservation, bool reserved);
};

/* What an open call takes besides its response: its bookkeeping and what it buffers. It counts
 * against the budget, and not against max_unsent_size. Zeroed, it holds nothing. */
struct memory_overhead {
    struct memory_account *account;
    uint64_t n_bytes;
    uint64_t n_open_call_bytes; /* of these, by memory_open_call_add */
};

void memory_quota_init(struct memory_quota *quota, const struct memory_quota_options *options);
/* Returns the credit. All accounts must be closed and all reservations released. */
void memory_quota_fini(struct memory_quota *quota);
/* Grants or refuses what waits. Returns: when to call it next; UINT64_MAX: nothing waits. */
uint64_t memory_quota_run(struct memory_quota *quota, uint64_t now_ns);
/* Returns: bytes of reservations that wait for the budget. */
uint64_t memory_quota_wanted(const struct memory_quota *quota);

/* Returns: bytes that are reserved for responses. NULL is allowed. */
static inline uint64_t memory_account_held_bytes(const struct memory_account *account) {
    return account ? account->n_bytes - account->n_waiting_bytes : 0;
}
/* Returns: whether nothing is reserved or waited for: no request of the connection runs, and all
 * responses were sent. NULL is allowed. */
static inline bool memory_account_holds_no_response(const struct memory_account *account) {
    return !account || account->n_bytes == 0;
}
/* Returns: bytes of its open calls. NULL is allowed. */
static inline uint64_t memory_account_call_bytes(const struct memory_account *account) {
    return account ? account->n_overhead_bytes : 0;
}
/* Returns: bytes of the pages that its responses hold, also where others hold them, too. NULL is
 * allowed. */
static inline uint64_t memory_account_page_bytes(const struct memory_account *account) {
    return account ? account->n_page_bytes : 0;
}
/* Returns: bytes of the connection itself beyond what each has. NULL is allowed. */
static inline uint64_t memory_account_conn_bytes(const struct memory_account *account) {
    return account
               ? account->n_conn_bytes[MEMORY_CONN_TLS] + account->n_conn_bytes[MEMORY_CONN_STATE] +
                     account->n_conn_bytes[MEMORY_CONN_BUFFERS] +
                     account->n_conn_bytes[MEMORY_CONN_SOCKET]
               : 0;
}
/* `peer`: the client of the connection, on which it takes a reference; NULL: it has none. Returns:
 * NULL when out of memory. Owns: memory_account_close. */
struct memory_account *memory_account_new(struct memory_quota *quota, struct net_peer *peer);
/* The connection continues under another quota of the same budget. It has no reservations, open
 * calls and pages. NULL is allowed. Thread: the worker's of both quotas. */
void memory_account_move(struct memory_account *account, struct memory_quota *quota);
/* Returns: the client of the connection. NULL is allowed. */
static inline struct net_peer *memory_account_peer(const struct memory_account *account) {
    return account ? account->peer : NULL;
}
/* The connection is closed; requests that are not finished may still hold reservations. NULL is
 * allowed. */
void memory_account_close(struct memory_account *account);

enum memory_reserve_result { MEMORY_GRANTED, MEMORY_WAITS, MEMORY_REFUSED };
/* Reserves `n_bytes`, at most half of UINT64_MAX. Returns: MEMORY_WAITS when `done` will be called;
 * MEMORY_REFUSED for more than the whole budget. `account` NULL: granted and not counted; `order`
 * NULL: the request may pass others. Owns: memory_release, unless refused. */
enum memory_reserve_result memory_reserve(struct memory_account *account,
                                          struct reservation_order *order,
                                          struct memory_reservation *reservation, uint64_t n_bytes,
                                          void (*done)(struct memory_reservation *reservation,
                                                       bool reserved));
/* As memory_reserve, of bytes that are in memory already: always granted, beyond the limits if need
 * be. */
void memory_hold(struct memory_account *account, struct memory_reservation *reservation,
                 uint64_t n_bytes);
/* Adds bytes that are in memory already, beyond the limits if need be. Only of a reservation that
 * is granted; else no effect. */
void memory_add(struct memory_reservation *reservation, uint64_t n_bytes);
/* Gives back some bytes. */
void memory_subtract(struct memory_reservation *reservation, uint64_t n_bytes);
/* Raises a granted reservation to the response's real size, if that is larger. */
static inline void memory_raise(struct memory_reservation *reservation, uint64_t n_bytes) {
    if (n_bytes > reservation->n_bytes) {
        memory_add(reservation, n_bytes - reservation->n_bytes);
    }
}
static inline bool memory_is_waiting(const struct memory_reservation *reservation) {
    return reservation->state == MEMORY_WAITS_FOR_ORDER ||
           reservation->state == MEMORY_WAITS_FOR_ACCOUNT ||
           reservation->state == MEMORY_WAITS_FOR_BUDGET || reservation->state == MEMORY_IS_REFUSED;
}
/* Gives back the reservation, or ends its wait. Idempotent; zeroed memory is allowed. `sent`: the
 * client has read the response. */
void memory_release(struct memory_reservation *reservation, bool sent);

enum memory_level {
    MEMORY_LEVEL_LARGE,   /* what holds much: all but net_budget.kept_memory */
    MEMORY_LEVEL_USUAL,   /* up to the budget's limit */
    MEMORY_LEVEL_REFUSAL, /* for as long as it takes to refuse a call: a 32nd more */
    MEMORY_LEVEL_FIRST,   /* of a connection that holds little: up to a sixteenth more, and the less
                           * of it the more its calls hold */
};
/* Takes `n_bytes` more of the budget. Returns: false when they don't fit: nothing was taken, and
 * memory_relieve was called. `account` NULL: true, and not counted. Owns:
 * memory_overhead_release. */
bool memory_overhead_add(struct memory_account *account, struct memory_overhead *overhead,
                         uint64_t n_bytes, enum memory_level level);
/* Takes the bytes of a call that is open, which all open calls take at most a quarter of the budget
 * for together: those of a connection at most OPEN_CALL_SHARE-th of what is left, so that many
 * connections with as many calls as they get leave some for another. (The first call of each is
 * contained in MEMORY_CONN_BASE.) A connection whose calls hold little may use a little more than
 * the budget: it is not refused for what others hold. `overhead` holds nothing yet. Returns: which
 * of both is used up; nothing was taken then. `account` NULL: granted, and not counted. Owns:
 * memory_overhead_release. */
enum memory_open_call { MEMORY_OPEN_CALL_GRANTED, MEMORY_OPEN_CALLS_FULL, MEMORY_BUDGET_FULL };
enum memory_open_call memory_open_call_add(struct memory_account *account,
                                           struct memory_overhead *overhead, uint64_t n_bytes);
/* Takes memory that the connection holds besides responses, bodies and calls, of the half of the
 * budget for connections; buffers of all of it. Where the budget is used up it is taken of the
 * extra of its kind, a sixteenth of the budget: of that of buffers, connections that hold much
 * leave half. Returns: false when it doesn't fit; nothing was taken. `account` NULL: true, and not
 * counted. Owns: memory_conn_subtract, or the account's close. */
bool memory_conn_add(struct memory_account *account, enum memory_conn_kind kind, uint64_t n_bytes);
/* As memory_conn_add, of bytes that are in memory already. */
void memory_conn_hold(struct memory_account *account, enum memory_conn_kind kind, uint64_t n_bytes);
void memory_conn_subtract(struct memory_account *account, enum memory_conn_kind kind,
                          uint64_t n_bytes);
/* What the kernel holds for it now. */
void memory_conn_set_socket(struct memory_account *account, uint64_t n_bytes);
/* Returns: what memory_conn_set_socket said last. NULL is allowed. */
static inline uint64_t memory_conn_socket_bytes(const struct memory_account *account) {
    return account ? account->n_conn_bytes[MEMORY_CONN_SOCKET] : 0;
}
/* MEMORY_CONN_BASE, which net_budget_take_conn has taken, and net_budget_give_conn gives back. */
void memory_conn_count_base(struct memory_account *account, uint64_t n_bytes);
/* Gives back some bytes. */
void memory_overhead_subtract(struct memory_overhead *overhead, uint64_t n_bytes);
/* Gives back all. Idempotent; zeroed memory is allowed. */
void memory_overhead_release(struct memory_overhead *overhead);

/* A response of the connection holds a page, which the budget counts already, once for all that
 * share it: net_budget_take_page. So reports name the connection, and it is closed as a slow reader
 * where it is one. NULL is allowed. */
void memory_page_hold(struct memory_account *account, uint64_t n_bytes);
void memory_page_release(struct memory_account *account, uint64_t n_bytes);

/* A request was refused for want of memory: closes connections that hold memory and do not read
 * their responses (memory_quota_options.relieve), at most once in MEMORY_RETRY_NS. NULL is
 * allowed. */
void memory_relieve(struct memory_account *account, uint64_t wanted);

/* Returns: whether the unsent responses of the connection reach max_unsent_size, or those of all
 * leave only net_budget.kept_memory. */
static inline bool memory_account_is_full(const struct memory_account *account) {
    const struct memory_quota_options *options = account ? &account->quota->options : NULL;
    return account &&
           ((options->max_unsent_size > 0 && account->n_bytes >= options->max_unsent_size) ||
            net_budget_is_tight(options->budget));
}
/* Returns: whether the open calls of the connection take less than a 64th of the budget. */
static inline bool memory_account_holds_little(const struct memory_account *account) {
    return !account ||
           account->n_overhead_bytes < net_budget_limit(account->quota->options.budget) / 64;
}
/* Returns: all that the connection holds or waits for. */
static inline uint64_t memory_account_bytes(const struct memory_account *account) {
    return account->n_bytes + account->n_overhead_bytes + account->n_page_bytes +
           account->n_conn_bytes[MEMORY_CONN_SOCKET];
}

#endif
