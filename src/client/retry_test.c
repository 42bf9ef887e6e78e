/* Which failures are tried again, when, and the budget: without a connection or a clock. */
#include "client/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define NOW (1000 * SECOND)

static struct error err;

static const struct client_retry *import(sluice_retry_policy policy) {
    const struct client_retry *retry;
    policy.size = sizeof(policy);
    assert_int_equal(client_retry_import(arena, &policy, &retry, &err), ST_OK);
    return retry;
}

static uint64_t decide(const struct client_retry *retry, struct client_retry_budget *budget,
                       struct client_failure failure) {
    failure.now_ns = NOW;
    failure.deadline_ns = failure.deadline_ns > 0 ? failure.deadline_ns : NOW + 60 * SECOND;
    failure.n_attempts = failure.n_attempts > 0 ? failure.n_attempts : 1;
    return client_retry_at_ns(retry, budget, &failure);
}

static void retry_by_status(void **state) {
    (void)state;
    static const int32_t HTTP[] = {429, 503}, GRPC[] = {14};
    const struct client_retry *none = import((sluice_retry_policy){0});
    const struct client_retry *listed = import((sluice_retry_policy){
        .http_statuses = HTTP, .n_http_statuses = 2, .grpc_statuses = GRPC, .n_grpc_statuses = 1});
    const struct client_retry *repeats = import((sluice_retry_policy){.may_repeat = 1});
    static const struct {
        sluice_client_error error;
        bool may_have_run;
        bool none, listed, repeats; /* is it tried again by that policy? */
    } rows[] = {
        {{.status = SLUICE_CLIENT_RESOLVE}, false, true, true, true},
        {{.status = SLUICE_CLIENT_CONNECT}, false, true, true, true},
        {{.status = SLUICE_CLIENT_TIMEOUT}, false, true, true, true},
        {{.status = SLUICE_CLIENT_TLS}, false, false, false, false},
        {{.status = SLUICE_CLIENT_TIMEOUT}, true, false, false, true},
        {{.status = SLUICE_CLIENT_CLOSED}, true, false, false, true},
        {{.status = SLUICE_CLIENT_PROTOCOL}, true, false, false, true},
        {{.status = SLUICE_CLIENT_SERVER_ERROR, .http_status = 503}, true, false, true, false},
        {{.status = SLUICE_CLIENT_SERVER_ERROR, .http_status = 500}, true, false, false, false},
        {{.status = SLUICE_CLIENT_SERVER_ERROR, .http_status = 200, .grpc_status = 14},
         true,
         false,
         true,
         false},
        {{.status = SLUICE_CLIENT_SERVER_ERROR, .http_status = 503, .grpc_status = 3},
         true,
         false,
         false,
         false},
        {{.status = SLUICE_CLIENT_SERVER_ERROR, .grpc_status = 14}, false, true, true, true},
        {{.status = SLUICE_CLIENT_SERVER_ERROR, .mip_error = 3}, true, false, false, false},
        {{.status = SLUICE_CLIENT_TOO_LARGE}, true, false, false, false},
        {{.status = SLUICE_CLIENT_NO_MEMORY}, false, false, false, false},
        {{.status = SLUICE_CLIENT_BUFFER_TOO_SMALL}, true, false, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct client_failure failure = {.error = &rows[i].error,
                                               .may_have_run = rows[i].may_have_run};
        struct client_retry_budget budget;
        client_retry_budget_init(&budget, NULL, 1);
        assert_int_equal(decide(none, &budget, failure) != UINT64_MAX, rows[i].none);
        assert_int_equal(decide(listed, &budget, failure) != UINT64_MAX, rows[i].listed);
        assert_int_equal(decide(repeats, &budget, failure) != UINT64_MAX, rows[i].repeats);
        assert_true(decide(NULL, &budget, failure) == UINT64_MAX);
    }
}

static const sluice_client_error REFUSED = {.status = SLUICE_CLIENT_CONNECT};

static void retry_waits_longer_each_time(void **state) {
    (void)state;
    const struct client_retry *retry = import((sluice_retry_policy){
        .max_attempts = 6, .backoff_ns = 100 * MS, .max_backoff_ns = 500 * MS});
    static const uint64_t MOST[] = {100 * MS, 200 * MS, 400 * MS, 500 * MS, 500 * MS};
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t least = UINT64_MAX, most = 0;
        struct client_retry_budget budget;
        for (uint64_t seed = 0; seed < 200; seed++) {
            client_retry_budget_init(&budget, retry, seed);
            uint64_t wait =
                decide(retry, &budget,
                       (struct client_failure){.error = &REFUSED, .n_attempts = i + 1}) -
                NOW;
            least = wait < least ? wait : least;
            most = wait > most ? wait : most;
        }
        assert_true(least >= MOST[i] / 2 && least < MOST[i] / 2 + MOST[i] / 10);
        assert_true(most <= MOST[i] && most > MOST[i] - MOST[i] / 10);
    }
    struct client_retry_budget budget;
    client_retry_budget_init(&budget, retry, 1);
    assert_true(decide(retry, &budget,
                       (struct client_failure){.error = &REFUSED, .n_attempts = 6}) == UINT64_MAX);
}

static void retry_waits_for_what_the_server_asks(void **state) {
    (void)state;
    const struct client_retry *retry = import((sluice_retry_policy){0});
    struct client_retry_budget budget;
    struct client_failure failure = {.error = &REFUSED, .retry_after = "7"};
    client_retry_budget_init(&budget, retry, 1);
    assert_true(decide(retry, &budget, failure) == NOW + 7 * SECOND);
    failure.retry_after = "0";
    assert_true(decide(retry, &budget, failure) <= NOW + 100 * MS);
    failure.retry_after = "Wed, 21 Oct 2026 07:28:00 GMT";
    assert_true(decide(retry, &budget, failure) <= NOW + 100 * MS);
    failure.retry_after = "99999999999999";
    assert_true(decide(retry, &budget, failure) == UINT64_MAX);
    failure.retry_after = "7"; /* not before the deadline */
    failure.deadline_ns = NOW + 7 * SECOND;
    assert_true(decide(retry, &budget, failure) == UINT64_MAX);
    failure.deadline_ns++;
    assert_true(decide(retry, &budget, failure) == NOW + 7 * SECOND);
    failure.deadline_ns = NOW;
    failure.retry_after = NULL;
    assert_true(decide(retry, &budget, failure) == UINT64_MAX);
}

static void retry_budget_is_refilled_by_successes(void **state) {
    (void)state;
    const struct client_retry *retry = import((sluice_retry_policy){.budget = 2});
    const struct client_failure failure = {.error = &REFUSED};
    struct client_retry_budget budget;
    client_retry_budget_init(&budget, retry, 1);
    assert_true(decide(retry, &budget, failure) != UINT64_MAX);
    assert_true(decide(retry, &budget, failure) != UINT64_MAX);
    assert_true(decide(retry, &budget, failure) == UINT64_MAX);
    for (int i = 0; i < 9; i++) {
        client_retry_budget_give(&budget);
    }
    assert_true(decide(retry, &budget, failure) == UINT64_MAX);
    client_retry_budget_give(&budget);
    assert_true(decide(retry, &budget, failure) != UINT64_MAX);
    for (int i = 0; i < 1000; i++) {
        client_retry_budget_give(&budget);
    }
    assert_int_equal(budget.tenths, 20);
}

static void retry_bad_policies_are_refused(void **state) {
    (void)state;
    const struct client_retry *retry;
    const sluice_retry_policy no_size = {.max_attempts = 2};
    const sluice_retry_policy no_list = {.size = sizeof(no_list), .n_http_statuses = 1};
    const sluice_retry_policy no_grpc = {.size = sizeof(no_grpc), .n_grpc_statuses = 1};
    assert_int_equal(client_retry_import(arena, &no_size, &retry, &err), ST_BAD_FIELD);
    assert_int_equal(client_retry_import(arena, &no_list, &retry, &err), ST_BAD_FIELD);
    assert_non_null(strstr(err.text, "http_statuses"));
    assert_int_equal(client_retry_import(arena, &no_grpc, &retry, &err), ST_BAD_FIELD);
    assert_int_equal(client_retry_import(arena, NULL, &retry, &err), ST_OK);
    assert_null(retry);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(retry_by_status),
        TEST(retry_waits_longer_each_time),
        TEST(retry_waits_for_what_the_server_asks),
        TEST(retry_budget_is_refilled_by_successes),
        TEST(retry_bad_policies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
