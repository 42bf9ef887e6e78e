/* What is known of a client: as long as its connection and its account, and for the queues of
 * helpers. */
#include "net/transport/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/transport/memory_account.h"

enum { HOST = 4711, BUDGET = 1 << 20 };

static uint64_t test_now_ns(void) {
    return 1;
}

static void on_schedule(void *user, uint64_t due_ns) {
    (void)user;
    (void)due_ns;
}

static void on_relieve(void *user, uint64_t wanted) {
    (void)user;
    (void)wanted;
}

static void open_quota(struct net_budget *budget, struct memory_quota *quota) {
    *budget = (struct net_budget){.memory = BUDGET};
    memory_quota_init(quota, &(struct memory_quota_options){.budget = budget,
                                                            .now_ns = test_now_ns,
                                                            .schedule = on_schedule,
                                                            .relieve = on_relieve});
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The sanitizers find one that is freed early, or never. */
static void peer_of_closed_connection_lives_until_last_reservation(void **state) {
    struct net_budget budget;
    struct memory_quota quota;
    struct memory_reservation reservation = {0};
    (void)state;
    open_quota(&budget, &quota);
    struct net_peer *peer = net_peer_new(HOST);
    struct memory_account *account = memory_account_new(&quota, peer);
    assert_int_equal(peer->n_refs, 2);
    assert_int_equal(memory_reserve(account, NULL, &reservation, 100, NULL), MEMORY_GRANTED);
    memory_account_close(account);
    net_peer_unref(peer);
    assert_int_equal(peer->n_refs, 1); /* the account's */
    assert_int_equal(peer->host, HOST);
    memory_release(&reservation, true);
    memory_quota_fini(&quota);
}

static void peer_outlives_account_without_reservations(void **state) {
    struct net_budget budget;
    struct memory_quota quota;
    (void)state;
    open_quota(&budget, &quota);
    struct net_peer *peer = net_peer_new(HOST);
    memory_account_close(memory_account_new(&quota, peer));
    assert_int_equal(peer->n_refs, 1);
    net_peer_unref(peer);
    memory_quota_fini(&quota);
}

/* ---- what is known --------------------------------------------------------------------------- */

static void peer_has_read_when_response_was_sent(void **state) {
    struct net_budget budget;
    struct memory_quota quota;
    struct memory_reservation reservation = {0};
    (void)state;
    open_quota(&budget, &quota);
    struct net_peer *peer = net_peer_new(HOST);
    struct memory_account *account = memory_account_new(&quota, peer);
    static const bool sent[] = {false, true, false};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(memory_reserve(account, NULL, &reservation, 100, NULL), MEMORY_GRANTED);
        memory_release(&reservation, sent[i]);
        assert_int_equal(peer->has_read, i > 0); /* it stays so */
    }
    memory_account_close(account);
    net_peer_unref(peer);
    memory_quota_fini(&quota);
}

static void account_without_peer_holds_memory(void **state) {
    struct net_budget budget;
    struct memory_quota quota;
    struct memory_reservation reservation = {0};
    (void)state;
    open_quota(&budget, &quota);
    struct memory_account *account = memory_account_new(&quota, NULL);
    assert_null(memory_account_peer(account));
    assert_int_equal(memory_reserve(account, NULL, &reservation, 100, NULL), MEMORY_GRANTED);
    memory_release(&reservation, true);
    memory_account_close(account);
    memory_quota_fini(&quota);
}

static void peer_client_is_its_host_and_connection(void **state) {
    (void)state;
    struct net_peer *first = net_peer_new(HOST), *second = net_peer_new(HOST);
    assert_int_equal(net_peer_client(first).host, HOST);
    assert_int_equal(net_peer_client(second).host, HOST);
    assert_int_not_equal(net_peer_client(first).conn, net_peer_client(second).conn);
    assert_int_equal(net_peer_client(NULL).host, 0);
    assert_int_equal(net_peer_client(NULL).conn, 0);
    net_peer_unref(first);
    net_peer_unref(second);
}

static void peer_is_trusted_after_success_without_failure(void **state) {
    (void)state;
    struct net_peer *peer = net_peer_new(HOST);
    assert_false(net_peer_is_trusted(peer));
    net_peer_note_success(peer);
    assert_true(net_peer_is_trusted(peer));
    peer->batch_apart_until_ns = 1;
    assert_false(net_peer_is_trusted(peer));
    net_peer_note_success(peer); /* until when it is batched apart does not change */
    assert_false(net_peer_is_trusted(peer));
    net_peer_unref(peer);
    assert_true(net_peer_is_trusted(NULL));
    net_peer_note_success(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peer_of_closed_connection_lives_until_last_reservation),
        cmocka_unit_test(peer_outlives_account_without_reservations),
        cmocka_unit_test(peer_has_read_when_response_was_sent),
        cmocka_unit_test(account_without_peer_holds_memory),
        cmocka_unit_test(peer_client_is_its_host_and_connection),
        cmocka_unit_test(peer_is_trusted_after_success_without_failure),
    };
    return cmocka_run_group_tests_name("net/transport/peer", tests, NULL, NULL);
}
