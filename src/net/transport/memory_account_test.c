/* Reservations of response memory: what is granted, what waits and in which order, what is refused,
 * and that everything is given back. */
#include "net/transport/memory_account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MB = 1 << 20, N = 8 };

static struct test_memory {
    struct net_budget budget;
    struct memory_quota quotas[2];
    struct memory_account *accounts[N];
    uint64_t due_ns; /* of the latest schedule; UINT64_MAX: none */
    uint64_t wanted; /* of the latest relief */
    int n_reliefs;
} memory;

/* A reservation that notes how its wait ended. */
struct request {
    struct memory_reservation reservation;
    int order; /* 0: still waits or never waited; else the place among those that ended */
    bool reserved;
};

static int n_ended;

static uint64_t now_ns;

static uint64_t test_now_ns(void) {
    return now_ns;
}

static void on_schedule(void *user, uint64_t due_ns) {
    (void)user;
    memory.due_ns = due_ns;
}

static void on_relieve(void *user, uint64_t wanted) {
    (void)user;
    memory.wanted = wanted;
    memory.n_reliefs++;
}

static void on_done(struct memory_reservation *reservation, bool reserved) {
    struct request *request = (struct request *)reservation; /* first member */
    request->order = ++n_ended;
    request->reserved = reserved;
}

static void open_memory(uint64_t budget, uint64_t max_unsent_size) {
    memset(&memory, 0, sizeof(memory));
    n_ended = 0;
    now_ns = 1;
    memory.due_ns = UINT64_MAX;
    memory.budget.memory = budget;
    for (size_t i = 0; i < 2; i++) {
        memory_quota_init(&memory.quotas[i],
                          &(struct memory_quota_options){.budget = &memory.budget,
                                                         .max_unsent_size = max_unsent_size,
                                                         .now_ns = test_now_ns,
                                                         .schedule = on_schedule,
                                                         .relieve = on_relieve});
    }
    for (size_t i = 0; i < N; i++) {
        struct net_peer *peer = net_peer_new(0);
        memory.accounts[i] = memory_account_new(&memory.quotas[0], peer);
        net_peer_unref(peer); /* the account has a reference */
        assert_non_null(memory.accounts[i]);
    }
}

static void close_memory(void) {
    for (size_t i = 0; i < N; i++) {
        memory_account_close(memory.accounts[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&memory.quotas[i].n_waiting_for_account), 0);
        assert_int_equal(atomic_load(&memory.quotas[i].n_waiting_for_budget), 0);
        memory_quota_fini(&memory.quotas[i]);
    }
    assert_int_equal(atomic_load(&memory.budget.n_bytes), 0);
}

static enum memory_reserve_result reserve(struct request *request, size_t account,
                                          uint64_t n_bytes) {
    memset(request, 0, sizeof(*request));
    return memory_reserve(memory.accounts[account], NULL, &request->reservation, n_bytes, on_done);
}

static void release(struct request *request) {
    memory_release(&request->reservation, true);
}

/* ---- accounts -------------------------------------------------------------------------------- */

static void memory_account_second_large_response_waits(void **state) {
    struct request requests[3];
    (void)state;
    open_memory(256 * MB, 16 * MB);
    assert_int_equal(reserve(&requests[0], 0, 20 * MB), MEMORY_GRANTED); /* over it, but the
                                                                            first */
    assert_int_equal(reserve(&requests[1], 0, 4 * MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[2], 1, 4 * MB), MEMORY_GRANTED); /* another client */
    assert_int_equal(atomic_load(&memory.quotas[0].n_bytes), 24 * MB);
    release(&requests[0]);
    assert_int_equal(memory.due_ns, 0); /* at the end of the iteration, not within the release */
    assert_int_equal(requests[1].order, 0);
    assert_int_equal(memory_quota_run(&memory.quotas[0], 1), UINT64_MAX);
    assert_true(requests[1].order == 1 && requests[1].reserved);
    release(&requests[1]);
    release(&requests[2]);
    close_memory();
}

static void memory_account_small_responses_fill_it_in_order(void **state) {
    struct request requests[6];
    (void)state;
    open_memory(256 * MB, 4 * MB);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(reserve(&requests[i], 0, MB), i < 4 ? MEMORY_GRANTED : MEMORY_WAITS);
    }
    release(&requests[0]);
    release(&requests[1]);
    memory_quota_run(&memory.quotas[0], 1);
    assert_int_equal(requests[4].order, 1);
    assert_int_equal(requests[5].order, 2);
    for (size_t i = 2; i < 6; i++) {
        release(&requests[i]);
    }
    close_memory();
}

static void memory_account_cancelled_wait_leaves_nothing(void **state) {
    struct request requests[3];
    (void)state;
    open_memory(256 * MB, MB);
    assert_int_equal(reserve(&requests[0], 0, MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 0, MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[2], 0, MB), MEMORY_WAITS);
    assert_int_equal(atomic_load(&memory.quotas[0].n_waiting_for_account), 2);
    memory_release(&requests[1].reservation, false);
    memory_release(&requests[1].reservation, false); /* idempotent */
    assert_int_equal(atomic_load(&memory.quotas[0].n_waiting_for_account), 1);
    release(&requests[0]);
    memory_quota_run(&memory.quotas[0], 1);
    assert_int_equal(requests[1].order, 0);
    assert_int_equal(requests[2].order, 1);
    release(&requests[2]);
    close_memory();
}

static void memory_account_closed_lives_until_last_release(void **state) {
    struct request request;
    (void)state;
    open_memory(256 * MB, MB);
    assert_int_equal(reserve(&request, 0, MB), MEMORY_GRANTED);
    memory_account_close(memory.accounts[0]);
    memory.accounts[0] = NULL;
    memory_raise(&request.reservation, 2 * MB); /* still counted */
    assert_int_equal(atomic_load(&memory.quotas[0].n_bytes), 2 * MB);
    release(&request);
    close_memory();
}

static void memory_account_null_counts_nothing(void **state) {
    struct memory_reservation reservation = {0};
    (void)state;
    open_memory(MB, MB);
    assert_int_equal(memory_reserve(NULL, NULL, &reservation, 100 * MB, on_done), MEMORY_GRANTED);
    memory_add(&reservation, MB);
    memory_release(&reservation, true);
    close_memory();
}

/* ---- budget ---------------------------------------------------------------------------------- */

static void memory_budget_full_makes_wait_then_refuses(void **state) {
    struct request requests[3];
    (void)state;
    open_memory(8 * MB, 16 * MB);
    assert_int_equal(reserve(&requests[0], 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 1, 4 * MB), MEMORY_WAITS);
    assert_true(memory.n_reliefs == 1 && memory.wanted == 4 * MB); /* at once */
    assert_int_equal(memory.due_ns, 1 + MEMORY_RELIEVED_NS);
    assert_int_equal(memory_quota_run(&memory.quotas[0], 1 + MEMORY_RELIEVED_NS),
                     1 + MEMORY_RELIEVED_NS + MEMORY_RETRY_NS);
    assert_int_equal(atomic_load(&memory.quotas[0].n_waiting_for_budget), 1);
    assert_int_equal(memory_account_held_bytes(memory.accounts[0]), 8 * MB);
    assert_int_equal(memory_account_held_bytes(memory.accounts[1]), 0); /* only waited for */
    assert_int_equal(memory.n_reliefs, 1);
    assert_int_equal(memory_quota_run(&memory.quotas[0], 1 + MEMORY_RETRY_NS),
                     1 + MEMORY_RETRY_NS + MEMORY_RELIEVED_NS);
    assert_true(memory.n_reliefs == 2 && memory.wanted == 4 * MB);
    assert_int_equal(memory_quota_run(&memory.quotas[0], 1 + MEMORY_WAIT_NS), UINT64_MAX);
    assert_true(requests[1].order == 1 && !requests[1].reserved);
    assert_int_equal(reserve(&requests[2], 2, 9 * MB), MEMORY_REFUSED); /* it never fits */
    release(&requests[0]);
    close_memory();
}

/* The response before it of the same client is sent, and others have taken the memory. */
static void memory_budget_full_for_a_turn_is_looked_at_soon(void **state) {
    struct request requests[3];
    (void)state;
    open_memory(8 * MB, MB);
    assert_int_equal(reserve(&requests[0], 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 0, 4 * MB), MEMORY_WAITS);
    release(&requests[0]);
    assert_int_equal(reserve(&requests[2], 1, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(memory.n_reliefs, 0);
    assert_int_equal(memory_quota_run(&memory.quotas[0], 1), 1 + MEMORY_RELIEVED_NS);
    assert_int_equal(memory.n_reliefs, 1);
    release(&requests[1]);
    release(&requests[2]);
    close_memory();
}

static void memory_budget_is_one_for_all_shares(void **state) {
    struct request requests[2];
    (void)state;
    open_memory(8 * MB, 16 * MB);
    struct memory_account *other = memory_account_new(&memory.quotas[1], NULL);
    assert_int_equal(reserve(&requests[0], 0, 7 * MB), MEMORY_GRANTED);
    memset(&requests[1], 0, sizeof(requests[1]));
    assert_int_equal(memory_reserve(other, NULL, &requests[1].reservation, 2 * MB, on_done),
                     MEMORY_WAITS);
    release(&requests[0]);
    /* The other worker's quota is not told; it tries again after MEMORY_RETRY_NS. */
    assert_int_equal(memory_quota_run(&memory.quotas[1], 1 + MEMORY_RETRY_NS), UINT64_MAX);
    assert_true(requests[1].reserved);
    release(&requests[1]);
    memory_account_close(other);
    close_memory();
}

static void memory_budget_bodies_and_responses_share_it(void **state) {
    struct request request;
    (void)state;
    open_memory(8 * MB, 16 * MB);
    memory.budget.body_memory = 8 * MB;
    assert_true(net_budget_reserve(&memory.budget, NET_BODY_HTTP, 6 * MB));
    assert_int_equal(reserve(&request, 0, 4 * MB), MEMORY_WAITS);
    assert_false(net_budget_fits(&memory.budget, 4 * MB));
    net_budget_release(&memory.budget, NET_BODY_HTTP, 6 * MB);
    memory_quota_run(&memory.quotas[0], 2);
    assert_true(request.reserved);
    assert_false(net_budget_reserve(&memory.budget, NET_BODY_HTTP, 6 * MB));
    release(&request);
    close_memory();
}

static void memory_budget_small_response_passes_those_that_wait(void **state) {
    struct request requests[3];
    (void)state;
    open_memory(8 * MB, 16 * MB);
    assert_int_equal(reserve(&requests[0], 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 1, MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[2], 2, MEMORY_SMALL_BYTES), MEMORY_GRANTED);
    for (size_t i = 0; i < 3; i++) {
        release(&requests[i]);
    }
    close_memory();
}

/* Where even a small one has to wait, it does not wait for the large ones before it. */
static void memory_budget_small_response_that_waits_passes_large_ones(void **state) {
    struct request full, requests[3], small[32];
    size_t n_small = 0;
    (void)state;
    open_memory(8 * MB, 16 * MB);
    assert_int_equal(reserve(&full, 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[0], 1, 4 * MB), MEMORY_WAITS);
    while (reserve(&small[n_small], 2, MEMORY_SMALL_BYTES) == MEMORY_GRANTED) {
        n_small++;
    }
    assert_int_equal(reserve(&requests[1], 1, 4 * MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[2], 2, MEMORY_SMALL_BYTES), MEMORY_WAITS);
    for (size_t i = 0; i < n_small; i++) {
        release(&small[i]);
    }
    memory_quota_run(&memory.quotas[0], 2);
    memory_quota_run(&memory.quotas[1], 2);
    assert_true(small[n_small].reserved && requests[2].reserved);
    assert_int_equal(requests[0].order + requests[1].order, 0);
    memory_release(&requests[0].reservation, false);
    memory_release(&requests[1].reservation, false);
    release(&requests[2]);
    release(&small[n_small]);
    release(&full);
    close_memory();
}

/* ---- orders ---------------------------------------------------------------------------------- */

static enum memory_reserve_result reserve_in_order(struct reservation_order *order,
                                                   struct request *request, uint64_t n_bytes) {
    memset(request, 0, sizeof(*request));
    return memory_reserve(memory.accounts[0], order, &request->reservation, n_bytes, on_done);
}

/* A stream's requests stay in order, however small the later ones are. */
static void reservation_order_later_requests_do_not_pass(void **state) {
    struct request full, other, requests[3];
    struct reservation_order order;
    (void)state;
    open_memory(8 * MB, 16 * MB);
    reservation_order_init(&order);
    assert_int_equal(reserve(&full, 1, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve_in_order(&order, &requests[0], 2 * MB), MEMORY_WAITS);
    assert_int_equal(reserve_in_order(&order, &requests[1], 100), MEMORY_WAITS);
    assert_int_equal(reserve_in_order(&order, &requests[2], 100), MEMORY_WAITS);
    assert_int_equal(reserve(&other, 0, 100), MEMORY_GRANTED); /* of another stream */
    release(&full);
    for (uint64_t i = 0; i < 3; i++) {
        memory_quota_run(&memory.quotas[0], 2 + i);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(requests[i].order == i + 1 && requests[i].reserved);
        release(&requests[i]);
    }
    assert_null(order.first);
    assert_int_equal(reserve_in_order(&order, &requests[0], MB), MEMORY_GRANTED);
    release(&requests[0]);
    release(&other);
    close_memory();
}

/* By a cancellation or a refusal. */
static void reservation_order_goes_on_when_wait_ends(void **state) {
    struct request full, requests[4];
    struct reservation_order order;
    (void)state;
    open_memory(8 * MB, 16 * MB);
    reservation_order_init(&order);
    assert_int_equal(reserve(&full, 1, 8 * MB), MEMORY_GRANTED);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(reserve_in_order(&order, &requests[i], MB), MEMORY_WAITS);
    }
    memory_release(&requests[1].reservation, false);
    memory_release(&requests[0].reservation, false);
    memory_quota_run(&memory.quotas[0], 2);
    assert_int_equal(requests[2].reservation.state, MEMORY_WAITS_FOR_BUDGET);
    memory_quota_run(&memory.quotas[0], 1 + MEMORY_WAIT_NS);
    assert_true(requests[2].order == 1 && !requests[2].reserved);
    release(&full);
    memory_quota_run(&memory.quotas[0], 2 + MEMORY_WAIT_NS);
    assert_true(requests[3].order == 2 && requests[3].reserved);
    release(&requests[3]);
    assert_null(order.first);
    close_memory();
}

static void memory_budget_client_that_read_goes_first(void **state) {
    struct request requests[4];
    (void)state;
    open_memory(8 * MB, 16 * MB);
    assert_int_equal(reserve(&requests[0], 3, MB), MEMORY_GRANTED);
    release(&requests[0]); /* client 3 has read a response */
    assert_int_equal(reserve(&requests[0], 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 1, 2 * MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[2], 2, 2 * MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[3], 3, 2 * MB), MEMORY_WAITS);
    release(&requests[0]);
    memory_quota_run(&memory.quotas[0], 2);
    assert_int_equal(requests[3].order, 1);
    assert_int_equal(requests[1].order, 2);
    assert_int_equal(requests[2].order, 3);
    for (size_t i = 1; i < 4; i++) {
        release(&requests[i]);
    }
    close_memory();
}

static void memory_budget_newest_goes_first_when_others_waited_long(void **state) {
    struct request requests[4];
    (void)state;
    open_memory(8 * MB, 16 * MB);
    assert_int_equal(reserve(&requests[0], 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 1, 4 * MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[2], 2, 4 * MB), MEMORY_WAITS);
    now_ns += 2 * MEMORY_LONG_NS;
    memory_quota_run(&memory.quotas[0], now_ns);
    assert_int_equal(reserve(&requests[3], 3, 4 * MB), MEMORY_WAITS);
    release(&requests[0]);
    memory_quota_run(&memory.quotas[0], now_ns);
    assert_int_equal(requests[3].order, 1);
    assert_int_equal(requests[1].order, 2);
    assert_int_equal(requests[2].order, 0);
    memory_quota_run(&memory.quotas[0], 1 + MEMORY_WAIT_NS);
    assert_true(requests[2].order == 3 && !requests[2].reserved);
    release(&requests[1]);
    release(&requests[3]);
    close_memory();
}

/* Each begins at once: others of the worker have their turn between them. */
static void memory_budget_many_that_wait_are_granted_in_parts(void **state) {
    enum { MANY = 50, GRANTED = 16 };
    struct request first, many[MANY];
    (void)state;
    open_memory(8 * MB, 64 * MB);
    assert_int_equal(reserve(&first, 0, 8 * MB), MEMORY_GRANTED);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(reserve(&many[i], 1, 100000), MEMORY_WAITS);
    }
    release(&first);
    for (int n = GRANTED; n < MANY; n += GRANTED) {
        memory.due_ns = UINT64_MAX;
        memory_quota_run(&memory.quotas[0], now_ns);
        assert_int_equal(n_ended, n);
        assert_int_equal(memory.due_ns, 0); /* with the next iteration */
    }
    memory_quota_run(&memory.quotas[0], now_ns);
    assert_int_equal(n_ended, MANY);
    for (size_t i = 0; i < MANY; i++) {
        assert_true(many[i].reserved);
        release(&many[i]);
    }
    close_memory();
}

static void memory_budget_one_quota_leaves_some_to_others(void **state) {
    struct request requests[6];
    (void)state;
    open_memory(64 * MB, 64 * MB);
    struct memory_account *other = memory_account_new(&memory.quotas[1], NULL);
    assert_int_equal(reserve(&requests[0], 0, 64 * MB), MEMORY_GRANTED);
    for (size_t i = 1; i < 5; i++) {
        assert_int_equal(reserve(&requests[i], i, 16 * MB), MEMORY_WAITS);
    }
    memset(&requests[5], 0, sizeof(requests[5]));
    assert_int_equal(memory_reserve(other, NULL, &requests[5].reservation, 16 * MB, on_done),
                     MEMORY_WAITS);
    release(&requests[0]);
    assert_true(memory.due_ns > 0); /* not at once */
    memory_quota_run(&memory.quotas[0], 2);
    assert_true(requests[1].reserved && requests[2].order == 0);
    assert_int_equal(memory_quota_run(&memory.quotas[1], 2), UINT64_MAX);
    assert_true(requests[5].reserved);
    memory_quota_run(&memory.quotas[0], 3); /* alone now: takes all that fits */
    assert_true(requests[2].reserved && requests[3].reserved && requests[4].order == 0);
    for (size_t i = 1; i < 6; i++) {
        release(&requests[i]);
    }
    memory_account_close(other);
    close_memory();
    assert_int_equal(atomic_load(&memory.budget.n_waiting_quotas), 0);
}

/* A large response that waits is not passed by one that would fit, of its own quota or of another:
 * it would wait as long as smaller ones come. */
static void memory_budget_large_response_that_waits_is_not_passed(void **state) {
    struct request requests[5];
    (void)state;
    open_memory(64 * MB, 64 * MB);
    struct memory_account *other = memory_account_new(&memory.quotas[1], NULL);
    assert_int_equal(reserve(&requests[0], 0, 32 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 1, 16 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[2], 2, 32 * MB), MEMORY_WAITS);
    assert_int_equal(reserve(&requests[3], 3, MB), MEMORY_WAITS); /* of 16 MB that are left */
    memset(&requests[4], 0, sizeof(requests[4]));
    assert_int_equal(memory_reserve(other, NULL, &requests[4].reservation, MB, on_done),
                     MEMORY_WAITS);
    release(&requests[0]);
    memory_quota_run(&memory.quotas[0], 2);
    assert_true(requests[2].reserved);
    memory_quota_run(&memory.quotas[0], 3);
    memory_quota_run(&memory.quotas[1], 3);
    assert_true(requests[3].reserved && requests[4].reserved);
    for (size_t i = 1; i < 5; i++) {
        release(&requests[i]);
    }
    memory_account_close(other);
    close_memory();
}

/* Quotas that try again at the same times would get nothing of what another one has just taken. */
static void memory_budget_quotas_try_again_at_different_times(void **state) {
    enum { N_TIMES = 20 };
    struct request full, waits[2];
    uint64_t first = 0, n_different = 0;
    (void)state;
    open_memory(64 * MB, 64 * MB);
    struct memory_account *other = memory_account_new(&memory.quotas[1], NULL);
    assert_int_equal(reserve(&full, 0, 64 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&waits[0], 1, MB), MEMORY_WAITS);
    assert_int_equal(memory_quota_run(&memory.quotas[0], 2), 2 + MEMORY_RETRY_NS); /* alone */
    memset(&waits[1], 0, sizeof(waits[1]));
    assert_int_equal(memory_reserve(other, NULL, &waits[1].reservation, MB, on_done), MEMORY_WAITS);
    for (uint64_t i = 0; i < N_TIMES; i++) {
        uint64_t due_ns = memory_quota_run(&memory.quotas[i % 2], 2) - 2;
        assert_in_range(due_ns, MEMORY_RETRY_NS / 10, MEMORY_RETRY_NS / 2);
        first = i == 0 ? due_ns : first;
        n_different += due_ns != first;
    }
    assert_true(n_different > N_TIMES / 2);
    release(&waits[0]);
    release(&waits[1]);
    release(&full);
    memory_account_close(other);
    close_memory();
}

static void memory_budget_requests_of_one_account_do_not_pass_its_limit(void **state) {
    struct request requests[4];
    (void)state;
    open_memory(8 * MB, 4 * MB);
    assert_int_equal(reserve(&requests[0], 0, 8 * MB), MEMORY_GRANTED);
    assert_int_equal(reserve(&requests[1], 1, 3 * MB), MEMORY_WAITS); /* for the budget */
    assert_int_equal(reserve(&requests[2], 1, 3 * MB), MEMORY_WAITS); /* for the account */
    assert_int_equal(requests[2].reservation.state, MEMORY_WAITS_FOR_ACCOUNT);
    release(&requests[0]);
    memory_quota_run(&memory.quotas[0], 2);
    assert_true(requests[1].reserved);
    assert_int_equal(requests[2].order, 0);
    release(&requests[1]);
    memory_quota_run(&memory.quotas[0], 3);
    assert_true(requests[2].reserved);
    release(&requests[2]);
    close_memory();
}

static void memory_response_larger_than_expected_is_counted(void **state) {
    struct request requests[2];
    (void)state;
    open_memory(8 * MB, 16 * MB);
    assert_int_equal(reserve(&requests[0], 0, 100), MEMORY_GRANTED);
    memory_raise(&requests[0].reservation, 20 * MB); /* it is there already */
    assert_int_equal(atomic_load(&memory.quotas[0].n_bytes), 20 * MB);
    assert_int_equal(reserve(&requests[1], 1, MB), MEMORY_WAITS);
    memory_subtract(&requests[0].reservation, 20 * MB - 10);
    memory_quota_run(&memory.quotas[0], 2);
    assert_true(requests[1].reserved);
    release(&requests[0]);
    release(&requests[1]);
    close_memory();
}

/* ---- overhead of open calls ------------------------------------------------------------------ */

static void memory_overhead_levels_go_up_to_their_limits(void **state) {
    struct memory_overhead overheads[4] = {{NULL, 0, 0}};
    const uint64_t limits[] = {56 * MB, 64 * MB, 66 * MB, 68 * MB}; /* of memory_level */
    (void)state;
    open_memory(64 * MB, 16 * MB);
    memory.budget.kept_memory = 8 * MB;
    memory.budget.body_memory = 64 * MB;
    for (size_t i = 0; i < 4; i++) {
        uint64_t before = i > 0 ? limits[i - 1] : 0;
        enum memory_level level = (enum memory_level)i;
        assert_false(
            memory_overhead_add(memory.accounts[i], &overheads[i], limits[i] - before + 1, level));
        assert_int_equal(overheads[i].n_bytes, 0);
        assert_true(
            memory_overhead_add(memory.accounts[i], &overheads[i], limits[i] - before, level));
    }
    assert_int_equal(memory_account_bytes(memory.accounts[1]), 8 * MB);
    assert_false(net_budget_reserve(&memory.budget, NET_BODY_HTTP, 1));
    assert_true(net_budget_is_tight(&memory.budget));
    for (size_t i = 0; i < 4; i++) {
        memory_overhead_release(&overheads[i]);
        memory_overhead_release(&overheads[i]);
    }
    close_memory();
}

/* Connections that keep opening calls until they are refused, and one that has none yet. */
static void memory_overhead_of_many_leaves_some_for_a_new_connection(void **state) {
    enum { CALL_BYTES = 8192 };
    struct memory_overhead full = {NULL, 0, 0}, overheads[N] = {{NULL, 0, 0}};
    bool grew = true;
    (void)state;
    open_memory(64 * MB, MB);
    assert_true(memory_overhead_add(memory.accounts[0], &full, 66 * MB, MEMORY_LEVEL_REFUSAL));
    while (grew) {
        grew = false;
        for (size_t i = 1; i + 1 < N; i++) {
            grew |= memory_overhead_add(memory.accounts[i], &overheads[i], CALL_BYTES,
                                        MEMORY_LEVEL_FIRST);
        }
    }
    for (size_t i = 0; i < 16; i++) {
        assert_true(memory_overhead_add(memory.accounts[N - 1], &overheads[0], CALL_BYTES,
                                        MEMORY_LEVEL_FIRST));
    }
    for (size_t i = 0; i < N; i++) {
        memory_overhead_release(&overheads[i]);
    }
    memory_overhead_release(&full);
    close_memory();
}

/* One after the other takes what it gets, and each takes memory of its own first. */
static void memory_of_new_connection_and_its_call_fits_beside_many(void **state) {
    enum { CALL_BYTES = 24576, CONN_BYTES = 55296 };
    struct memory_overhead full = {NULL, 0, 0}, overheads[N] = {{NULL, 0, 0}};
    (void)state;
    open_memory(64 * MB, MB);
    assert_true(memory_overhead_add(memory.accounts[0], &full, 66 * MB, MEMORY_LEVEL_REFUSAL));
    for (size_t i = 1; i < N; i++) {
        assert_true(net_budget_take_conn(&memory.budget, CONN_BYTES));
        memory_conn_count_base(memory.accounts[i], CONN_BYTES);
        assert_true(
            memory_overhead_add(memory.accounts[i], &overheads[i], CALL_BYTES, MEMORY_LEVEL_FIRST));
        while (memory_overhead_add(memory.accounts[i], &overheads[i], CALL_BYTES,
                                   MEMORY_LEVEL_FIRST)) {
        }
    }
    for (size_t i = 1; i < N; i++) {
        memory_overhead_release(&overheads[i]);
        net_budget_give_conn(&memory.budget, CONN_BYTES);
    }
    memory_overhead_release(&full);
    close_memory();
}

/* The quarter is theirs only; what others hold is looked at as for other small things. */
static void memory_open_calls_take_at_most_quarter(void **state) {
    struct memory_overhead calls[4] = {{NULL, 0, 0}}, other = {NULL, 0, 0};
    (void)state;
    open_memory(64 * MB, 16 * MB);
    assert_true(memory_overhead_add(memory.accounts[0], &other, 57 * MB, MEMORY_LEVEL_USUAL));
    assert_int_equal(memory_open_call_add(memory.accounts[1], &calls[0], 4 * MB),
                     MEMORY_OPEN_CALL_GRANTED);
    assert_int_equal(memory_open_call_add(memory.accounts[1], &calls[1], 1),
                     MEMORY_OPEN_CALLS_FULL); /* its share */
    assert_int_equal(memory_open_call_add(memory.accounts[2], &calls[1], 2 * MB),
                     MEMORY_OPEN_CALL_GRANTED);
    assert_int_equal(memory_open_call_add(memory.accounts[0], &calls[2], 2 * MB),
                     MEMORY_BUDGET_FULL);
    memory_overhead_release(&other);
    assert_int_equal(memory_open_call_add(memory.accounts[3], &calls[2], 3 * MB),
                     MEMORY_OPEN_CALLS_FULL);
    assert_int_equal(memory_open_call_add(memory.accounts[3], &calls[2], 2 * MB),
                     MEMORY_OPEN_CALL_GRANTED);
    assert_int_equal(memory.quotas[0].n_overhead_bytes, 8 * MB);
    for (size_t i = 0; i < 4; i++) {
        memory_overhead_release(&calls[i]);
        memory_overhead_release(&calls[i]);
    }
    assert_int_equal(memory_account_bytes(memory.accounts[1]), 0);
    assert_int_equal(memory.accounts[1]->n_open_call_bytes, 0);
    close_memory();
    assert_int_equal(memory.budget.n_open_call_bytes, 0);
}

/* Connections with as many calls as they get leave some to one that has none yet. */
static void memory_open_calls_of_many_leave_some_for_another(void **state) {
    enum { CALL_BYTES = 5120, MAX_CALLS = 65536 };
    struct memory_overhead *calls = calloc(MAX_CALLS, sizeof(*calls));
    size_t n = 0, n_before = 0;
    (void)state;
    assert_non_null(calls);
    open_memory(64 * MB, MB);
    do {
        n_before = n;
        for (size_t i = 0; i + 1 < N && n < MAX_CALLS; i++) {
            n += memory_open_call_add(memory.accounts[i], &calls[n], CALL_BYTES) ==
                 MEMORY_OPEN_CALL_GRANTED;
        }
    } while (n > n_before);
    assert_true(n * CALL_BYTES <= 16 * MB);
    size_t n_all = n;
    while (n < MAX_CALLS && memory_open_call_add(memory.accounts[N - 1], &calls[n], CALL_BYTES) ==
                                MEMORY_OPEN_CALL_GRANTED) {
        n++;
    }
    assert_true(n - n_all > n_all / N / 2);
    while (n > 0) {
        memory_overhead_release(&calls[--n]);
    }
    free(calls);
    close_memory();
}

static void memory_connections_take_at_most_half(void **state) {
    struct memory_account *account;
    (void)state;
    open_memory(64 * MB, MB);
    account = memory.accounts[0];
    assert_true(memory_conn_add(account, MEMORY_CONN_TLS, 20 * MB));
    assert_false(memory_conn_add(memory.accounts[1], MEMORY_CONN_TLS, 13 * MB));
    assert_true(memory_conn_add(memory.accounts[1], MEMORY_CONN_TLS, 12 * MB));
    assert_true(memory_conn_add(account, MEMORY_CONN_BUFFERS, 32 * MB)); /* of all memory */
    assert_true(memory_conn_add(account, MEMORY_CONN_BUFFERS, 2 * MB));  /* half of the extra */
    assert_false(memory_conn_add(account, MEMORY_CONN_BUFFERS, 1));
    memory_conn_hold(account, MEMORY_CONN_BUFFERS, 4 * MB); /* in use already */
    assert_int_equal(memory.quotas[0].n_conn_bytes[MEMORY_CONN_TLS], 32 * MB);
    assert_int_equal(memory.quotas[0].n_conn_bytes[MEMORY_CONN_BUFFERS], 38 * MB);
    memory_conn_subtract(account, MEMORY_CONN_TLS, 8 * MB);
    assert_int_equal(memory.budget.n_conn_bytes, 24 * MB);
    assert_int_equal(memory_account_bytes(account), 0); /* neither responses nor calls */
    close_memory();
    assert_int_equal(memory.budget.n_conn_bytes, 0);
    assert_int_equal(memory.budget.n_bytes, 0);
}

/* Once the limit is reached, small requests, connections and buffers have an extra each: none of
 * them takes that of another, whatever is in use already. */
static void memory_extras_are_one_for_each_kind(void **state) {
    struct memory_overhead full = {NULL, 0, 0}, calls[2] = {{NULL, 0, 0}};
    struct net_budget *budget = &memory.budget;
    (void)state;
    open_memory(64 * MB, MB);
    assert_true(memory_overhead_add(memory.accounts[0], &full, 64 * MB, MEMORY_LEVEL_USUAL));
    assert_true(memory_conn_add(memory.accounts[1], MEMORY_CONN_TLS, 4 * MB));
    assert_false(memory_conn_add(memory.accounts[1], MEMORY_CONN_TLS, 1));
    memory_conn_hold(memory.accounts[1], MEMORY_CONN_TLS, 8 * MB); /* in use already */
    assert_true(memory_conn_add(memory.accounts[2], MEMORY_CONN_BUFFERS, 4 * MB));
    assert_false(memory_conn_add(memory.accounts[3], MEMORY_CONN_BUFFERS, 1));
    memory_conn_hold(memory.accounts[2], MEMORY_CONN_BUFFERS, 8 * MB);
    assert_true(memory_overhead_add(memory.accounts[1], &calls[0], 3 * MB, MEMORY_LEVEL_FIRST));
    assert_int_equal(budget->n_bytes, 67 * MB);
    /* What is given back is the extra's first. */
    memory_conn_subtract(memory.accounts[1], MEMORY_CONN_TLS, 9 * MB);
    memory_conn_subtract(memory.accounts[2], MEMORY_CONN_BUFFERS, 9 * MB);
    assert_int_equal(budget->n_conn_extra_bytes, 3 * MB);
    assert_int_equal(budget->n_buffer_extra_bytes, 3 * MB);
    assert_true(net_budget_take_conn(budget, MB));
    assert_false(net_budget_take_conn(budget, 1));
    net_budget_give_conn(budget, MB);
    memory_overhead_release(&calls[0]);
    memory_overhead_release(&full);
    uint64_t n_before = budget->n_bytes; /* credit of the quota */
    /* Where there is memory again, it is not the extra's. */
    assert_true(net_budget_take_conn(budget, 2 * MB));
    assert_int_equal(budget->n_bytes, n_before + 2 * MB);
    net_budget_give_conn(budget, 2 * MB);
    assert_int_equal(budget->n_conn_extra_bytes, MB);
    close_memory();
    assert_int_equal(budget->n_bytes, 0);
    assert_int_equal(budget->n_conn_bytes, 0);
    assert_int_equal(budget->n_conn_extra_bytes, 0);
    assert_int_equal(budget->n_buffer_extra_bytes, 0);
}

/* What small requests take before they wait for memory is theirs when others use up all, and the
 * extra for small requests. */
static void memory_arenas_have_first_bytes_in_any_case(void **state) {
    struct memory_overhead full = {NULL, 0, 0};
    struct net_budget *budget = &memory.budget;
    size_t n = 0;
    (void)state;
    open_memory(64 * MB, MB);
    assert_true(memory_overhead_add(memory.accounts[0], &full, 64 * MB, MEMORY_LEVEL_USUAL));
    net_budget_force(budget, 8 * MB);
    while (net_budget_take_for_arena(budget, 4096, 0)) {
        n++;
    }
    assert_int_equal(n, 2 * MB / 4096);
    assert_false(net_budget_take_for_arena(budget, 4096, 4096)); /* of a request that has them */
    assert_int_equal(budget->n_arena_bytes, 2 * MB);
    net_budget_give_from_arena(budget, 8192);
    assert_true(net_budget_take_for_arena(budget, 4096, 0));
    net_budget_give_from_arena(budget, 2 * MB - 4096);
    net_budget_give(budget, 8 * MB);
    memory_overhead_release(&full);
    close_memory();
    assert_int_equal(budget->n_arena_bytes, 0);
    assert_int_equal(budget->n_arena_extra_bytes, 0);
    assert_int_equal(budget->n_bytes, 0);
}

/* Connections whose answers are not read take as many buffers as they get, then one that holds
 * nothing. */
static void memory_buffers_of_many_leave_some_for_another(void **state) {
    enum { BUFFER_BYTES = 8192 };
    struct memory_overhead full[N] = {{NULL, 0, 0}};
    bool grew = true;
    (void)state;
    open_memory(64 * MB, MB);
    for (size_t i = 0; i + 1 < N; i++) {
        assert_true(memory_overhead_add(memory.accounts[i], &full[i], 64 * MB / (N - 1),
                                        MEMORY_LEVEL_USUAL));
    }
    while (grew) {
        grew = false;
        for (size_t i = 0; i + 1 < N; i++) {
            grew |= memory_conn_add(memory.accounts[i], MEMORY_CONN_BUFFERS, BUFFER_BYTES);
        }
    }
    assert_true(memory_conn_add(memory.accounts[N - 1], MEMORY_CONN_BUFFERS, MB));
    for (size_t i = 0; i + 1 < N; i++) {
        memory_overhead_release(&full[i]);
    }
    close_memory();
}

/* Beyond an eighth of the limit it counts against it, whichever connection has it. */
static void memory_sockets_count_beyond_an_eighth(void **state) {
    (void)state;
    open_memory(64 * MB, MB);
    memory_conn_set_socket(memory.accounts[0], 5 * MB);
    memory_conn_set_socket(memory.accounts[1], 3 * MB);
    assert_int_equal(memory.budget.n_bytes, 0);
    memory_conn_set_socket(memory.accounts[1], 6 * MB);
    assert_int_equal(memory.budget.n_bytes, 3 * MB);
    memory_conn_set_socket(memory.accounts[0], 70 * MB); /* it is there already */
    assert_int_equal(memory.budget.n_bytes, 68 * MB);
    assert_true(net_budget_is_tight(&memory.budget));
    assert_int_equal(memory.quotas[0].n_conn_bytes[MEMORY_CONN_SOCKET], 76 * MB);
    assert_int_equal(memory_account_bytes(memory.accounts[0]), 70 * MB);
    memory_conn_set_socket(memory.accounts[0], 0);
    assert_int_equal(memory.budget.n_bytes, 0);
    assert_int_equal(memory_conn_socket_bytes(memory.accounts[1]), 6 * MB);
    close_memory();
}

/* Nothing can take back at once what the kernel holds of others' answers: small responses are not
 * refused for it, large ones wait. */
static void memory_sockets_leave_small_responses_their_limit(void **state) {
    struct request small, large;
    (void)state;
    open_memory(64 * MB, 64 * MB);
    memory_conn_set_socket(memory.accounts[0], 72 * MB); /* 64 of them count */
    assert_int_equal(memory.budget.n_bytes, 64 * MB);
    assert_int_equal(reserve(&large, 1, MB), MEMORY_WAITS);
    release(&large);
    for (size_t i = 0; i < 64 * MB / MEMORY_SMALL_BYTES; i++) {
        assert_true(net_budget_take_within(&memory.budget, MEMORY_SMALL_BYTES,
                                           net_budget_small_limit(&memory.budget)));
    }
    assert_int_equal(reserve(&small, 2, MEMORY_SMALL_BYTES), MEMORY_GRANTED); /* of the extra */
    release(&small);
    net_budget_give(&memory.budget, 64 * MB);
    memory_conn_set_socket(memory.accounts[0], 0);
    close_memory();
}

/* Metrics can be read while memory is used up. */
static void memory_pages_have_some_in_any_case(void **state) {
    struct net_budget *budget = &memory.budget;
    (void)state;
    open_memory(64 * MB, MB);
    net_budget_force(budget, 64 * MB);
    assert_true(net_budget_take_page(budget, NET_BODY_HTTP, NET_BUDGET_FREE_PAGES));
    assert_false(net_budget_take_page(budget, NET_BODY_HTTP, 1));
    net_budget_give(budget, 64 * MB);
    assert_true(net_budget_take_page(budget, NET_BODY_HTTP, MB));
    net_budget_give_page(budget, NET_BODY_HTTP, MB);
    net_budget_give_page(budget, NET_BODY_HTTP, NET_BUDGET_FREE_PAGES);
    close_memory();
}

/* A request that begins to wait beside many others must not take time for each of them. */
static void memory_budget_many_begin_to_wait_in_linear_time(void **state) {
    enum { MANY = 100000 };
    struct request first, *requests = calloc(MANY, sizeof(*requests));
    (void)state;
    assert_non_null(requests);
    open_memory(8 * MB, 0);
    assert_int_equal(reserve(&first, 0, 8 * MB), MEMORY_GRANTED);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(reserve(&requests[i], i % N, 2 * MB), MEMORY_WAITS);
    }
    assert_int_equal(memory.n_reliefs, 1); /* the clock stands still */
    assert_true(memory_quota_wanted(&memory.quotas[0]) == (uint64_t)MANY * 2 * MB);
    for (size_t i = 0; i < MANY; i++) {
        release(&requests[i]);
    }
    release(&first);
    close_memory();
    free(requests);
}

static void memory_overhead_refused_asks_for_relief_at_intervals(void **state) {
    struct memory_overhead overhead = {NULL, 0, 0};
    (void)state;
    open_memory(MB, 0);
    for (int i = 0; i < 3; i++) {
        assert_false(
            memory_overhead_add(memory.accounts[0], &overhead, 2 * MB, MEMORY_LEVEL_FIRST));
    }
    assert_int_equal(memory.n_reliefs, 1); /* the clock stands still */
    assert_int_equal(memory.wanted, 2 * MB);
    memory_relieve(NULL, 1);
    assert_true(memory_overhead_add(NULL, &overhead, 2 * MB, MEMORY_LEVEL_LARGE));
    memory_overhead_release(&overhead);
    close_memory();
}

static size_t n_asked;

/* Two users that could each free all that is wanted. */
static void free_one_mb(struct net_budget_user *user) {
    (void)user;
    n_asked++;
    net_budget_claim_relief(&memory.budget, MB);
}

static void memory_budget_users_free_together_what_is_wanted(void **state) {
    struct net_budget_user users[2] = {{.relieve = free_one_mb}, {.relieve = free_one_mb}};
    (void)state;
    open_memory(64 * MB, 0);
    net_budget_add_user(&memory.budget, &users[0]);
    net_budget_add_user(&memory.budget, &users[1]);
    net_budget_relieve(&memory.budget, 3 * MB);
    assert_int_equal(n_asked, 2);
    assert_int_equal(net_budget_wanted(&memory.budget), MB);
    assert_true(net_budget_claim_relief(&memory.budget, 4 * MB));
    assert_false(net_budget_claim_relief(&memory.budget, 4 * MB));
    net_budget_relieve(&memory.budget, MB);
    assert_int_equal(net_budget_wanted(&memory.budget), 0);
    close_memory();
}

static void memory_overhead_outlives_its_connection(void **state) {
    struct memory_overhead overhead = {NULL, 0, 0};
    (void)state;
    open_memory(64 * MB, MB);
    assert_true(memory_overhead_add(memory.accounts[0], &overhead, 4 * MB, MEMORY_LEVEL_USUAL));
    assert_false(memory_account_is_full(memory.accounts[0])); /* only responses count */
    assert_false(memory_account_holds_little(memory.accounts[0]));
    memory_account_close(memory.accounts[0]);
    memory.accounts[0] = NULL;
    memory_overhead_subtract(&overhead, MB);
    memory_overhead_release(&overhead);
    close_memory();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_account_second_large_response_waits),
        cmocka_unit_test(memory_account_small_responses_fill_it_in_order),
        cmocka_unit_test(memory_account_cancelled_wait_leaves_nothing),
        cmocka_unit_test(memory_account_closed_lives_until_last_release),
        cmocka_unit_test(memory_account_null_counts_nothing),
        cmocka_unit_test(memory_budget_full_makes_wait_then_refuses),
        cmocka_unit_test(memory_budget_full_for_a_turn_is_looked_at_soon),
        cmocka_unit_test(memory_budget_is_one_for_all_shares),
        cmocka_unit_test(memory_budget_bodies_and_responses_share_it),
        cmocka_unit_test(memory_budget_small_response_passes_those_that_wait),
        cmocka_unit_test(memory_budget_small_response_that_waits_passes_large_ones),
        cmocka_unit_test(reservation_order_later_requests_do_not_pass),
        cmocka_unit_test(reservation_order_goes_on_when_wait_ends),
        cmocka_unit_test(memory_budget_client_that_read_goes_first),
        cmocka_unit_test(memory_budget_newest_goes_first_when_others_waited_long),
        cmocka_unit_test(memory_budget_one_quota_leaves_some_to_others),
        cmocka_unit_test(memory_budget_large_response_that_waits_is_not_passed),
        cmocka_unit_test(memory_budget_quotas_try_again_at_different_times),
        cmocka_unit_test(memory_budget_requests_of_one_account_do_not_pass_its_limit),
        cmocka_unit_test(memory_response_larger_than_expected_is_counted),
        cmocka_unit_test(memory_overhead_levels_go_up_to_their_limits),
        cmocka_unit_test(memory_overhead_of_many_leaves_some_for_a_new_connection),
        cmocka_unit_test(memory_of_new_connection_and_its_call_fits_beside_many),
        cmocka_unit_test(memory_open_calls_take_at_most_quarter),
        cmocka_unit_test(memory_open_calls_of_many_leave_some_for_another),
        cmocka_unit_test(memory_connections_take_at_most_half),
        cmocka_unit_test(memory_extras_are_one_for_each_kind),
        cmocka_unit_test(memory_arenas_have_first_bytes_in_any_case),
        cmocka_unit_test(memory_buffers_of_many_leave_some_for_another),
        cmocka_unit_test(memory_sockets_count_beyond_an_eighth),
        cmocka_unit_test(memory_sockets_leave_small_responses_their_limit),
        cmocka_unit_test(memory_pages_have_some_in_any_case),
        cmocka_unit_test(memory_budget_many_that_wait_are_granted_in_parts),
        cmocka_unit_test(memory_budget_many_begin_to_wait_in_linear_time),
        cmocka_unit_test(memory_overhead_refused_asks_for_relief_at_intervals),
        cmocka_unit_test(memory_budget_users_free_together_what_is_wanted),
        cmocka_unit_test(memory_overhead_outlives_its_connection),
    };
    return cmocka_run_group_tests_name("net/transport/memory_account", tests, NULL, NULL);
}
