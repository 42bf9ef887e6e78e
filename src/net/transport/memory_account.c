/* Reservations: granted at once, or in the order in which they wait. */
#include "net/transport/memory_account.h"

#include <assert.h>
#include <stdlib.h>

/* A quota's credit is taken and kept in chunks of this size; of a small budget, a fraction. */
enum { CHUNK_BYTES = 1 << 20, CHUNKS_OF_BUDGET = 256 };
/* What one run of a quota grants while requests wait in others, too. */
enum { RUN_FRACTION = 16 };
/* Requests that one run grants: they begin at once, and others of the worker have their turn before
 * the next ones. */
enum { RUN_GRANTS = 16 };

/* ---- credit of the budget -------------------------------------------------------------------- */

static uint64_t chunk_bytes(const struct memory_quota *quota) {
    uint64_t fraction = net_budget_limit(quota->options.budget) / CHUNKS_OF_BUDGET;
    return fraction < CHUNK_BYTES ? fraction : CHUNK_BYTES;
}

/* Returns: how far beyond its limit small requests may use the budget, and buffers, each kind for
 * itself: half of that in any case, of the other half the more the less their connection holds. So
 * connections that take as much as they get leave something to one that has nothing yet, however
 * many they are. */
static uint64_t extra_bytes(const struct memory_quota *quota, uint64_t n_held_bytes) {
    uint64_t half = net_budget_small_extra(quota->options.budget);
    return 2 * half - (n_held_bytes < half / 2 ? 2 * n_held_bytes : half);
}

/* The quota has less credit than `n_bytes`. Takes more, in chunks while that stays within the
 * budget's limit, and what is missing within `limit`. Returns: whether it has as much now. */
static bool take_credit_within(struct memory_quota *quota, uint64_t n_bytes, uint64_t limit) {
    struct net_budget *budget = quota->options.budget;
    uint64_t missing = n_bytes - quota->n_credit, chunk = chunk_bytes(quota);
    uint64_t most = missing > chunk ? missing : chunk;
    uint64_t usual = net_budget_limit(budget);
    if (net_budget_take_within(budget, most, limit < usual ? limit : usual)) {
        quota->n_credit += most;
        return true;
    }
    if (net_budget_take_within(budget, missing, limit)) {
        quota->n_credit += missing;
        return true;
    }
    return false;
}

static bool take_credit(struct memory_account *account, uint64_t n_bytes) {
    struct memory_quota *quota = account->quota;
    if (quota->n_credit >= n_bytes) {
        return true;
    }
    uint64_t limit = net_budget_limit(quota->options.budget);
    if (n_bytes <= MEMORY_SMALL_BYTES) {
        limit = net_budget_small_limit(quota->options.budget) +
                extra_bytes(quota, memory_account_bytes(account));
    }
    return take_credit_within(quota, n_bytes, limit);
}

static void return_credit(struct memory_quota *quota, uint64_t keep) {
    if (quota->n_credit > keep) {
        net_budget_give(quota->options.budget, quota->n_credit - keep);
        quota->n_credit = keep;
    }
}

/* Returns: what the connection may take for another open call. */
static uint64_t open_call_share(const struct memory_account *account) {
    const struct memory_quota *quota = account->quota;
    const struct net_budget *budget = quota->options.budget;
    uint64_t used = atomic_load_explicit(&budget->n_open_call_bytes, memory_order_relaxed);
    uint64_t limit = net_budget_open_call_limit(budget) + quota->n_open_call_credit;
    uint64_t share = limit > used ? (limit - used) / OPEN_CALL_SHARE : 0;
    return share > account->n_open_call_bytes ? share - account->n_open_call_bytes : 0;
}

/* Takes credit of the quarter for open calls, likewise. Returns: whether the quota has as much. */
static bool take_open_call_credit(struct memory_quota *quota, uint64_t n_bytes) {
    if (quota->n_open_call_credit >= n_bytes) {
        return true;
    }
    uint64_t missing = n_bytes - quota->n_open_call_credit, chunk = chunk_bytes(quota) / 4;
    uint64_t most = missing > chunk ? missing : chunk;
    if (!net_budget_take_open_calls(quota->options.budget, most)) {
        most = missing;
        if (!net_budget_take_open_calls(quota->options.budget, most)) {
            return false;
        }
    }
    quota->n_open_call_credit += most;
    return true;
}

static void return_open_call_credit(struct memory_quota *quota, uint64_t keep) {
    if (quota->n_open_call_credit > keep) {
        net_budget_give_open_calls(quota->options.budget, quota->n_open_call_credit - keep);
        quota->n_open_call_credit = keep;
    }
}

/* Written by the worker only, so that no read-modify-write is needed. */
static void set_quota_bytes(struct memory_quota *quota, uint64_t n_bytes) {
    atomic_store_explicit(&quota->n_bytes, n_bytes, memory_order_relaxed);
}

static void count_own(_Atomic uint64_t *n, uint64_t by) {
    uint64_t old = atomic_load_explicit(n, memory_order_relaxed);
    atomic_store_explicit(n, old + by, memory_order_relaxed);
}

static void count_waiting(_Atomic uint64_t *n, int by) {
    uint64_t old = atomic_load_explicit(n, memory_order_relaxed);
    atomic_store_explicit(n, old + (uint64_t)by, memory_order_relaxed);
}

static uint64_t quota_bytes(const struct memory_quota *quota) {
    return atomic_load_explicit(&quota->n_bytes, memory_order_relaxed);
}

static bool has_waiting(const struct memory_quota *quota) {
    for (size_t i = 0; i < MEMORY_WAITING_LISTS; i++) {
        if (!TAILQ_EMPTY(&quota->waiting[i])) {
            return true;
        }
    }
    return false;
}

/* Small responses go before large ones, which would wait for more memory; requests of clients that
 * have read a response before those of clients that have not. */
static struct memory_reservation *first_waiting(const struct memory_quota *quota) {
    struct memory_reservation *first = NULL;
    for (size_t i = MEMORY_WAITING_LISTS; !first && i > 0; i--) {
        first = TAILQ_FIRST(&quota->waiting[i - 1]);
    }
    return first;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

void memory_quota_init(struct memory_quota *quota, const struct memory_quota_options *options) {
    *quota = (struct memory_quota){.options = *options};
    quota->max_credit = 2 * chunk_bytes(quota);
    quota->prng.state = (uint64_t)(uintptr_t)quota;
    for (size_t i = 0; i < MEMORY_WAITING_LISTS; i++) {
        TAILQ_INIT(&quota->waiting[i]);
    }
    TAILQ_INIT(&quota->refused);
    LIST_INIT(&quota->ready);
}

void memory_quota_fini(struct memory_quota *quota) {
    assert(quota_bytes(quota) == 0 && !has_waiting(quota) && LIST_EMPTY(&quota->ready));
    return_credit(quota, 0);
    return_open_call_credit(quota, 0);
}

static bool others_wait(const struct memory_quota *quota) {
    uint32_t n =
        atomic_load_explicit(&quota->options.budget->n_waiting_quotas, memory_order_relaxed);
    return n > (quota->is_waiting ? 1 : 0);
}

static void update_waiting(struct memory_quota *quota) {
    bool is_waiting = has_waiting(quota);
    if (is_waiting != quota->is_waiting) {
        quota->is_waiting = is_waiting;
        atomic_fetch_add_explicit(&quota->options.budget->n_waiting_quotas,
                                  is_waiting ? 1 : UINT32_MAX, memory_order_relaxed);
    }
}

/* Returns: when to try again, in a tenth to half of MEMORY_RETRY_NS where others do, too. */
static uint64_t retry_ns(struct memory_quota *quota, uint64_t now_ns) {
    uint32_t tenth = (uint32_t)(MEMORY_RETRY_NS / 10);
    return now_ns +
           (others_wait(quota) ? tenth + prng_below(&quota->prng, 4 * tenth) : MEMORY_RETRY_NS);
}

static void schedule(struct memory_quota *quota, uint64_t due_ns) {
    if (due_ns > 0) {
        quota->options.schedule(quota->options.user, due_ns);
    } else if (!quota->scheduled) {
        quota->scheduled = true;
        quota->options.schedule(quota->options.user, 0);
    }
}

uint64_t memory_quota_wanted(const struct memory_quota *quota) {
    const struct memory_reservation *reservation;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < MEMORY_WAITING_LISTS; i++) {
        TAILQ_FOREACH(reservation, &quota->waiting[i], link) {
            n_bytes += reservation->n_bytes;
        }
    }
    return n_bytes;
}

static void relieve(struct memory_quota *quota, uint64_t now_ns, uint64_t wanted) {
    quota->relief_due_ns = now_ns + MEMORY_RETRY_NS;
    quota->options.relieve(quota->options.user, wanted);
}

/* What waits is summed up only when a relief is due: many may wait. Returns: whether it was. */
static bool relieve_waiting(struct memory_quota *quota, uint64_t now_ns) {
    bool due = now_ns >= quota->relief_due_ns;
    if (due) {
        relieve(quota, now_ns, memory_quota_wanted(quota));
    }
    return due;
}

/* ---- accounts -------------------------------------------------------------------------------- */

struct memory_account *memory_account_new(struct memory_quota *quota, struct net_peer *peer) {
    struct memory_account *account = calloc(1, sizeof(*account));
    if (account) {
        account->quota = quota;
        account->peer = peer;
        net_peer_ref(peer);
        TAILQ_INIT(&account->waiting);
    }
    return account;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void count_conn(struct memory_account *account, enum memory_conn_kind kind, uint64_t by) {
    account->n_conn_bytes[kind] += by;
    count_own(&account->quota->n_conn_bytes[kind], by);
}

bool memory_conn_add(struct memory_account *account, enum memory_conn_kind kind, uint64_t n_bytes) {
    if (!account) {
        return true;
    }
    struct net_budget *budget = account->quota->options.budget;
    bool fits;
    if (kind == MEMORY_CONN_BUFFERS) {
        uint64_t n_held_bytes = memory_account_bytes(account) + account->n_conn_bytes[kind];
        fits = net_budget_take_buffer(budget, n_bytes, extra_bytes(account->quota, n_held_bytes));
    } else {
        fits = net_budget_take_conn(budget, n_bytes);
    }
    if (fits) {
        count_conn(account, kind, n_bytes);
    }
    return fits;
}

void memory_conn_hold(struct memory_account *account, enum memory_conn_kind kind,
                      uint64_t n_bytes) {
    if (!account) {
        return;
    }
    struct net_budget *budget = account->quota->options.budget;
    if (kind == MEMORY_CONN_BUFFERS) {
        net_budget_force_buffer(budget, n_bytes);
    } else {
        net_budget_force_conn(budget, n_bytes);
    }
    count_conn(account, kind, n_bytes);
}

void memory_conn_subtract(struct memory_account *account, enum memory_conn_kind kind,
                          uint64_t n_bytes) {
    if (!account || n_bytes == 0) {
        return;
    }
    assert(account->n_conn_bytes[kind] >= n_bytes);
    struct net_budget *budget = account->quota->options.budget;
    if (kind == MEMORY_CONN_BUFFERS) {
        net_budget_give_buffer(budget, n_bytes);
    } else {
        net_budget_give_conn(budget, n_bytes);
    }
    count_conn(account, kind, 0 - n_bytes);
}

void memory_conn_set_socket(struct memory_account *account, uint64_t n_bytes) {
    if (!account) {
        return;
    }
    struct net_budget *budget = account->quota->options.budget;
    uint64_t counted = account->n_conn_bytes[MEMORY_CONN_SOCKET];
    if (n_bytes > counted) {
        net_budget_hold_socket(budget, n_bytes - counted);
    } else if (n_bytes < counted) {
        net_budget_give_socket(budget, counted - n_bytes);
    }
    count_conn(account, MEMORY_CONN_SOCKET, n_bytes - counted);
}

void memory_conn_count_base(struct memory_account *account, uint64_t n_bytes) {
    if (account) {
        count_conn(account, MEMORY_CONN_BASE, n_bytes);
    }
}

void memory_account_move(struct memory_account *account, struct memory_quota *quota) {
    if (!account) {
        return;
    }
    assert(account->n_reservations == 0 && !account->is_ready);
    assert(quota->options.budget == account->quota->options.budget);
    for (enum memory_conn_kind kind = MEMORY_CONN_BASE; kind < MEMORY_CONN_KINDS; kind++) {
        count_own(&account->quota->n_conn_bytes[kind], 0 - account->n_conn_bytes[kind]);
        count_own(&quota->n_conn_bytes[kind], account->n_conn_bytes[kind]);
    }
    account->quota = quota;
}

/* ---- the end of an account ------------------------------------------------------------------- */

static void free_if_unused(struct memory_account *account) {
    if (account->closed && account->n_reservations == 0) {
        if (account->is_ready) {
            LIST_REMOVE(account, ready_link);
        }
        net_peer_unref(account->peer);
        free(account);
    }
}

void memory_account_close(struct memory_account *account) {
    if (account) {
        for (enum memory_conn_kind kind = MEMORY_CONN_TLS; kind < MEMORY_CONN_SOCKET; kind++) {
            memory_conn_subtract(account, kind, account->n_conn_bytes[kind]);
        }
        memory_conn_set_socket(account, 0);
        count_conn(account, MEMORY_CONN_BASE, 0 - account->n_conn_bytes[MEMORY_CONN_BASE]);
        account->closed = true;
        free_if_unused(account);
    }
}

/* The first response always has space. */
static bool account_has_space(const struct memory_account *account, uint64_t n_bytes) {
    uint64_t max = account->quota->options.max_unsent_size;
    return account->n_bytes == 0 || max == 0 || account->n_bytes + n_bytes <= max;
}

static void update_ready(struct memory_account *account) {
    const struct memory_reservation *first = TAILQ_FIRST(&account->waiting);
    bool is_ready = first && account_has_space(account, first->n_bytes);
    if (is_ready && !account->is_ready) {
        LIST_INSERT_HEAD(&account->quota->ready, account, ready_link);
        schedule(account->quota, 0);
    } else if (!is_ready && account->is_ready) {
        LIST_REMOVE(account, ready_link);
    }
    account->is_ready = is_ready;
}

/* ---- reservations ---------------------------------------------------------------------------- */

/* The quota's part of a granted reservation, whose credit was taken. */
static void quota_count(struct memory_quota *quota, uint64_t n_bytes) {
    assert(quota->n_credit >= n_bytes);
    quota->n_credit -= n_bytes;
    set_quota_bytes(quota, quota_bytes(quota) + n_bytes);
}

static void quota_uncount(struct memory_quota *quota, uint64_t n_bytes) {
    set_quota_bytes(quota, quota_bytes(quota) - n_bytes);
    quota->n_credit += n_bytes;
    if (quota->n_credit > quota->max_credit) {
        return_credit(quota, quota->max_credit / 2);
    }
    /* Without is_waiting none waits, which is the usual case. */
    if (quota->is_waiting && has_waiting(quota) && !others_wait(quota)) {
        schedule(quota, 0);
    }
}

static void account_uncount(struct memory_account *account, uint64_t n_bytes) {
    account->n_bytes -= n_bytes;
    update_ready(account);
}

static void grant(struct memory_reservation *reservation) {
    reservation->state = MEMORY_RESERVED;
    quota_count(reservation->account->quota, reservation->n_bytes);
}

/* The reservation no longer waits for the budget; it is in `list`. */
static void remove_waiting(struct memory_reservation *reservation,
                           struct memory_reservation_list *list) {
    struct memory_account *account = reservation->account;
    TAILQ_REMOVE(list, reservation, link);
    account->n_waiting_bytes -= reservation->n_bytes;
    count_waiting(&account->quota->n_waiting_for_budget, -1);
}

/* The reservation no longer waits for its account. */
static void remove_from_account(struct memory_reservation *reservation) {
    struct memory_account *account = reservation->account;
    TAILQ_REMOVE(&account->waiting, reservation, link);
    count_waiting(&account->quota->n_waiting_for_account, -1);
}

/* In order; but when requests have waited long, the newest first: it is served in time, and of
 * those that wait most come too late anyway. */
static void insert_waiting(struct memory_reservation *reservation) {
    struct memory_quota *quota = reservation->account->quota;
    uint64_t now_ns = quota->options.now_ns();
    reservation->state = MEMORY_WAITS_FOR_BUDGET;
    reservation->until_ns = now_ns + MEMORY_WAIT_NS;
    const struct net_peer *peer = reservation->account->peer;
    bool has_read = peer && peer->has_read;
    if (reservation->n_bytes <= MEMORY_SMALL_BYTES) {
        reservation->waiting = has_read ? MEMORY_WAITING_SMALL_READER : MEMORY_WAITING_SMALL;
    } else {
        reservation->waiting = has_read ? MEMORY_WAITING_LARGE_READER : MEMORY_WAITING_LARGE;
    }
    reservation->account->n_waiting_bytes += reservation->n_bytes;
    count_waiting(&quota->n_waiting_for_budget, 1);
    struct memory_reservation_list *list = &quota->waiting[reservation->waiting];
    if (quota->newest_first) {
        TAILQ_INSERT_HEAD(list, reservation, link);
    } else {
        TAILQ_INSERT_TAIL(list, reservation, link);
    }
    update_waiting(quota);
    bool relieved = relieve_waiting(quota, now_ns);
    schedule(quota, relieved ? now_ns + MEMORY_RELIEVED_NS : retry_ns(quota, now_ns));
}

/* The account has space: takes it from the budget. Returns: whether it did. */
static bool try_grant(struct memory_reservation *reservation) {
    struct memory_quota *quota = reservation->account->quota;
    if (reservation->n_bytes > MEMORY_SMALL_BYTES) {
        const struct memory_reservation *first = first_waiting(quota);
        if (first ? first != reservation : others_wait(quota)) {
            return false;
        }
    }
    return take_credit(reservation->account, reservation->n_bytes);
}

static void wait_for_account(struct memory_reservation *reservation) {
    struct memory_account *account = reservation->account;
    reservation->state = MEMORY_WAITS_FOR_ACCOUNT;
    TAILQ_INSERT_TAIL(&account->waiting, reservation, link);
    count_waiting(&account->quota->n_waiting_for_account, 1);
}

static void remove_from_order(struct memory_reservation *reservation) {
    TAILQ_REMOVE(&reservation->order->waiting, reservation, link);
    count_waiting(&reservation->account->quota->n_waiting_for_account, -1);
}

/* The reservation waits no longer: the next of its order has its turn. It is granted by
 * memory_quota_run, after `done` of this one has returned. */
static void leave_order(struct memory_reservation *reservation) {
    struct reservation_order *order = reservation->order;
    if (!order) {
        return;
    }
    order->first = TAILQ_FIRST(&order->waiting);
    if (order->first) {
        remove_from_order(order->first);
        wait_for_account(order->first);
        update_ready(order->first->account);
    }
}

enum memory_reserve_result memory_reserve(struct memory_account *account,
                                          struct reservation_order *order,
                                          struct memory_reservation *reservation, uint64_t n_bytes,
                                          void (*done)(struct memory_reservation *reservation,
                                                       bool reserved)) {
    assert(reservation->state == MEMORY_NONE);
    if (!account) {
        return MEMORY_GRANTED;
    }
    if (n_bytes > net_budget_limit(account->quota->options.budget)) {
        return MEMORY_REFUSED;
    }
    reservation->account = account;
    reservation->order = order;
    reservation->n_bytes = n_bytes;
    reservation->done = done;
    account->n_reservations++;
    if (order && order->first) {
        reservation->state = MEMORY_WAITS_FOR_ORDER;
        TAILQ_INSERT_TAIL(&order->waiting, reservation, link);
        count_waiting(&account->quota->n_waiting_for_account, 1);
        return MEMORY_WAITS;
    }
    if (!reservation->is_inner &&
        (!TAILQ_EMPTY(&account->waiting) || !account_has_space(account, n_bytes))) {
        wait_for_account(reservation);
    } else {
        account->n_bytes += n_bytes;
        if (try_grant(reservation)) {
            grant(reservation);
            return MEMORY_GRANTED;
        }
        insert_waiting(reservation);
    }
    if (order) {
        order->first = reservation;
    }
    return MEMORY_WAITS;
}

/* Takes credit for bytes that are in use already. */
static void take_credit_by_force(struct memory_account *account, uint64_t n_bytes) {
    struct memory_quota *quota = account->quota;
    if (!take_credit(account, n_bytes)) {
        net_budget_force(quota->options.budget, n_bytes - quota->n_credit);
        quota->n_credit = n_bytes;
    }
}

void memory_hold(struct memory_account *account, struct memory_reservation *reservation,
                 uint64_t n_bytes) {
    assert(reservation->state == MEMORY_NONE);
    if (!account) {
        return;
    }
    reservation->account = account;
    reservation->n_bytes = n_bytes;
    account->n_reservations++;
    account->n_bytes += n_bytes;
    take_credit_by_force(account, n_bytes);
    grant(reservation);
}

void memory_add(struct memory_reservation *reservation, uint64_t n_bytes) {
    if (reservation->state != MEMORY_RESERVED) {
        return;
    }
    struct memory_account *account = reservation->account;
    take_credit_by_force(account, n_bytes);
    reservation->n_bytes += n_bytes;
    account->n_bytes += n_bytes;
    quota_count(account->quota, n_bytes);
}

void memory_subtract(struct memory_reservation *reservation, uint64_t n_bytes) {
    if (reservation->state == MEMORY_RESERVED) {
        assert(reservation->n_bytes >= n_bytes);
        reservation->n_bytes -= n_bytes;
        quota_uncount(reservation->account->quota, n_bytes);
        account_uncount(reservation->account, n_bytes);
    }
}

void memory_release(struct memory_reservation *reservation, bool sent) {
    struct memory_account *account = reservation->account;
    uint8_t state = reservation->state;
    if (state == MEMORY_NONE) {
        return;
    }
    reservation->state = MEMORY_NONE;
    if (state == MEMORY_WAITS_FOR_ORDER) {
        remove_from_order(reservation);
    } else if (state == MEMORY_WAITS_FOR_ACCOUNT) {
        remove_from_account(reservation);
        leave_order(reservation);
        update_ready(account);
    } else {
        if (state == MEMORY_RESERVED) {
            if (sent && account->peer) {
                account->peer->has_read = true;
            }
            quota_uncount(account->quota, reservation->n_bytes);
        } else {
            remove_waiting(reservation, state == MEMORY_IS_REFUSED
                                            ? &account->quota->refused
                                            : &account->quota->waiting[reservation->waiting]);
            update_waiting(account->quota);
            leave_order(reservation);
        }
        account_uncount(account, reservation->n_bytes);
    }
    reservation->n_bytes = 0;
    account->n_reservations--;
    free_if_unused(account);
}

/* ---- overhead of open calls ------------------------------------------------------------------ */

void memory_relieve(struct memory_account *account, uint64_t wanted) {
    uint64_t now_ns = account ? account->quota->options.now_ns() : 0;
    if (account && now_ns >= account->quota->relief_due_ns) {
        relieve(account->quota, now_ns, wanted);
    }
}

static uint64_t limit_of(const struct memory_account *account, enum memory_level level) {
    const struct net_budget *budget = account->quota->options.budget;
    switch (level) {
    case MEMORY_LEVEL_LARGE:
        return net_budget_large_limit(budget);
    case MEMORY_LEVEL_USUAL:
        return net_budget_limit(budget);
    case MEMORY_LEVEL_REFUSAL:
        return net_budget_small_limit(budget) + net_budget_small_extra(budget);
    case MEMORY_LEVEL_FIRST:
        break;
    }
    return net_budget_small_limit(budget) + extra_bytes(account->quota, account->n_overhead_bytes);
}

bool memory_overhead_add(struct memory_account *account, struct memory_overhead *overhead,
                         uint64_t n_bytes, enum memory_level level) {
    if (!account) {
        return true;
    }
    if (account->quota->n_credit < n_bytes &&
        !take_credit_within(account->quota, n_bytes, limit_of(account, level))) {
        memory_relieve(account, n_bytes);
        return false;
    }
    if (!overhead->account) {
        overhead->account = account;
        account->n_reservations++;
    }
    overhead->n_bytes += n_bytes;
    account->n_overhead_bytes += n_bytes;
    count_own(&account->quota->n_overhead_bytes, n_bytes);
    quota_count(account->quota, n_bytes);
    return true;
}

enum memory_open_call memory_open_call_add(struct memory_account *account,
                                           struct memory_overhead *overhead, uint64_t n_bytes) {
    if (!account) {
        return MEMORY_OPEN_CALL_GRANTED;
    }
    if (n_bytes > open_call_share(account) || !take_open_call_credit(account->quota, n_bytes)) {
        return MEMORY_OPEN_CALLS_FULL;
    }
    enum memory_level level =
        memory_account_holds_little(account) ? MEMORY_LEVEL_FIRST : MEMORY_LEVEL_LARGE;
    if (!memory_overhead_add(account, overhead, n_bytes, level)) {
        return MEMORY_BUDGET_FULL;
    }
    account->quota->n_open_call_credit -= n_bytes;
    account->n_open_call_bytes += n_bytes;
    overhead->n_open_call_bytes = n_bytes;
    return MEMORY_OPEN_CALL_GRANTED;
}

/* The credit is kept for the next call, but for what is more than the quota keeps. */
static void give_open_call(struct memory_overhead *overhead) {
    struct memory_quota *quota = overhead->account->quota;
    quota->n_open_call_credit += overhead->n_open_call_bytes;
    overhead->account->n_open_call_bytes -= overhead->n_open_call_bytes;
    overhead->n_open_call_bytes = 0;
    if (quota->n_open_call_credit > quota->max_credit / 4) {
        return_open_call_credit(quota, quota->max_credit / 8);
    }
}

void memory_overhead_subtract(struct memory_overhead *overhead, uint64_t n_bytes) {
    if (overhead->account) {
        assert(overhead->n_bytes >= n_bytes);
        overhead->n_bytes -= n_bytes;
        overhead->account->n_overhead_bytes -= n_bytes;
        count_own(&overhead->account->quota->n_overhead_bytes, 0 - n_bytes);
        quota_uncount(overhead->account->quota, n_bytes);
    }
}

void memory_overhead_release(struct memory_overhead *overhead) {
    struct memory_account *account = overhead->account;
    if (account) {
        give_open_call(overhead);
        memory_overhead_subtract(overhead, overhead->n_bytes);
        overhead->account = NULL;
        account->n_reservations--;
        free_if_unused(account);
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

void memory_page_hold(struct memory_account *account, uint64_t n_bytes) {
    if (account) {
        if (account->n_page_bytes == 0 && n_bytes > 0) {
            account->pages_since_ns = account->quota->options.now_ns();
        }
        account->n_page_bytes += n_bytes;
        account->n_reservations++;
    }
}

void memory_page_release(struct memory_account *account, uint64_t n_bytes) {
    if (account) {
        assert(account->n_page_bytes >= n_bytes);
        account->n_page_bytes -= n_bytes;
        account->n_reservations--;
        free_if_unused(account);
    }
}

/* ---- what waits ------------------------------------------------------------------------------ */

/* The first that waits for an account gets its turn at the budget. Returns: how many were
 * granted. */
static size_t admit_ready_accounts(struct memory_quota *quota) {
    struct memory_account *account;
    size_t n = 0;
    while (n < RUN_GRANTS && (account = LIST_FIRST(&quota->ready))) {
        struct memory_reservation *reservation = TAILQ_FIRST(&account->waiting);
        remove_from_account(reservation);
        account->n_bytes += reservation->n_bytes;
        update_ready(account);
        if (try_grant(reservation)) {
            grant(reservation);
            leave_order(reservation);
            n++;
            reservation->done(reservation, true);
        } else {
            insert_waiting(reservation);
        }
    }
    return n;
}

/* `n`: so many were granted in this run. Returns: as many more. */
static size_t grant_waiting(struct memory_quota *quota, size_t n) {
    struct memory_reservation *reservation;
    uint64_t n_granted = 0, most = net_budget_limit(quota->options.budget) / RUN_FRACTION;
    while (n < RUN_GRANTS && (!others_wait(quota) || n_granted < most) &&
           (reservation = first_waiting(quota)) && try_grant(reservation)) {
        n++;
        n_granted += reservation->n_bytes;
        remove_waiting(reservation, &quota->waiting[reservation->waiting]);
        grant(reservation);
        leave_order(reservation);
        reservation->done(reservation, true);
    }
    return n;
}

static void mark_refused(struct memory_reservation *reservation) {
    struct memory_quota *quota = reservation->account->quota;
    TAILQ_REMOVE(&quota->waiting[reservation->waiting], reservation, link);
    TAILQ_INSERT_TAIL(&quota->refused, reservation, link);
    reservation->state = MEMORY_IS_REFUSED;
}

/* Moves what has waited too long to the list of refusals, and looks at how long the others wait. */
static void find_expired(struct memory_quota *quota, uint64_t now_ns) {
    uint64_t long_ns = now_ns + MEMORY_WAIT_NS - MEMORY_LONG_NS;
    quota->newest_first = false;
    for (size_t i = 0; i < MEMORY_WAITING_LISTS; i++) {
        struct memory_reservation *reservation = TAILQ_FIRST(&quota->waiting[i]);
        while (reservation) {
            struct memory_reservation *next = TAILQ_NEXT(reservation, link);
            quota->newest_first = quota->newest_first || reservation->until_ns < long_ns;
            if (reservation->until_ns <= now_ns) {
                mark_refused(reservation);
            }
            reservation = next;
        }
    }
}

static void refuse_expired(struct memory_quota *quota, uint64_t now_ns) {
    struct memory_reservation *reservation;
    find_expired(quota, now_ns);
    while ((reservation = TAILQ_FIRST(&quota->refused))) {
        void (*done)(struct memory_reservation *, bool) = reservation->done;
        memory_release(reservation, false);
        done(reservation, false);
    }
}

uint64_t memory_quota_run(struct memory_quota *quota, uint64_t now_ns) {
    uint64_t relief_due_ns = quota->relief_due_ns;
    quota->scheduled = false;
    size_t n = grant_waiting(quota, admit_ready_accounts(quota));
    if (n >= RUN_GRANTS) {
        schedule(quota, 0);
    }
    refuse_expired(quota, now_ns);
    update_waiting(quota);
    if (!has_waiting(quota)) {
        return UINT64_MAX;
    }
    (void)relieve_waiting(quota, now_ns);
    bool relieved = quota->relief_due_ns != relief_due_ns; /* by what began to wait, too */
    return relieved ? now_ns + MEMORY_RELIEVED_NS : retry_ns(quota, now_ns);
}
