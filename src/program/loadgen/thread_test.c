/* The loop of one thread over a fake protocol: started, counted and abandoned requests. The
 * times are real and short; none is asserted. */
#include "program/loadgen/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/event/clock.h"

enum { MS = 1000000 };

/* The fake server's behaviour, and what it observed. */
static struct {
    int steps;      /* of each request before its answer, each after waiting for its descriptor */
    bool never;     /* it never answers */
    bool by_time;   /* it has no descriptor, only timeouts */
    int fail_every; /* every such request fails; 0: none */
    enum status failure;
    unsigned n_open, n_most_open, n_opened, n_begun;
} server;

struct connection {
    int fd;
    int steps_left;
    bool fails;
};

static enum status fake_open(const struct bench_call *call, void **out, struct error *err) {
    (void)call;
    (void)err;
    struct connection *connection = calloc(1, sizeof(*connection));
    assert_non_null(connection);
    connection->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(connection->fd >= 0);
    server.n_opened++;
    server.n_open++;
    server.n_most_open = server.n_open > server.n_most_open ? server.n_open : server.n_most_open;
    *out = connection;
    return ST_OK;
}

static void fake_close(void *user) {
    struct connection *connection = user;
    close(connection->fd);
    free(connection);
    server.n_open--;
}

static enum status fake_start(void *user, const struct bench_call *call, struct error *err) {
    struct connection *connection = user;
    (void)call;
    (void)err;
    server.n_begun++;
    connection->steps_left = server.steps;
    connection->fails = server.fail_every > 0 && server.n_begun % (unsigned)server.fail_every == 0;
    (void)eventfd_write(connection->fd, 1); /* readable from now on */
    return ST_OK;
}

/* Refusals are seen by `take`, other failures by `step`. */
static enum status fail_as_told(struct error *err) {
    return error_set(err, server.failure, "as told");
}

static enum status fake_step(void *user, bool *done, struct error *err) {
    struct connection *connection = user;
    eventfd_t value;
    *done = false;
    if (server.never || connection->steps_left-- > 0) {
        if (server.never) {
            (void)eventfd_read(connection->fd, &value);
        }
        return ST_OK;
    }
    (void)eventfd_read(connection->fd, &value);
    if (connection->fails && server.failure != ST_REFUSED) {
        return fail_as_told(err);
    }
    *done = true;
    return ST_OK;
}

static void fake_wait(const void *user, struct client_waiting *waiting) {
    const struct connection *connection = user;
    *waiting = (struct client_waiting){.fd = server.by_time ? -1 : connection->fd,
                                       .read = true,
                                       .timeout_ns = server.by_time ? 0 : UINT64_MAX};
}

static enum status fake_take(void *user, const struct bench_call *call, bool whole,
                             uint64_t *n_bytes, struct bench_error *failed) {
    const struct connection *connection = user;
    (void)call;
    assert_false(whole);
    *n_bytes = 30;
    if (connection->fails) {
        failed->http_status = 503;
        return fail_as_told(&failed->err);
    }
    return ST_OK;
}

static const struct bench_protocol fake = {.name = "fake",
                                           .schemes = "",
                                           .open = fake_open,
                                           .close = fake_close,
                                           .start = fake_start,
                                           .step = fake_step,
                                           .wait = fake_wait,
                                           .take = fake_take};

/* ---- the tests ------------------------------------------------------------------------------- */

struct bed {
    struct bench_call call;
    struct bench_step_state step;
    struct bench_thread_options options;
    struct bench_thread *load;
};

static int set_up(void **state) {
    struct bed *bed = calloc(1, sizeof(*bed));
    assert_non_null(bed);
    uint64_t now = clock_now_ns();
    bed->call = (struct bench_call){.protocol = &fake, .n_bytes = 70};
    bed->step = (struct bench_step_state){.call = &bed->call, .from_ns = now};
    bed->step.until_ns = UINT64_MAX;
    bed->step.give_up_ns = UINT64_MAX;
    bed->options = (struct bench_thread_options){.n_connections = 3, .start_ns = now};
    server = (__typeof__(server)){.steps = 1, .failure = ST_REFUSED};
    *state = bed;
    return 0;
}

static int tear_down(void **state) {
    struct bed *bed = *state;
    bench_thread_free(bed->load);
    free(bed);
    assert_int_equal(server.n_open, 0);
    return 0;
}

static const struct bench_stats *run(struct bed *bed) {
    struct error err = {0};
    assert_int_equal(bench_thread_new(&bed->step, &bed->options, &bed->load, &err), ST_OK);
    bench_thread_run(bed->load);
    return bench_thread_stats(bed->load);
}

static void count_requests(struct bed *bed, int64_t n) {
    bed->step.counted = true;
    bed->step.n_left = n;
}

static void load_closed_loop_sends_requested_count(void **state) {
    struct bed *bed = *state;
    count_requests(bed, 1000);
    const struct bench_stats *stats = run(bed);
    assert_int_equal(server.n_begun, 1000);
    assert_int_equal(bench_histogram_total(&stats->latency), 1000);
    assert_int_equal(stats->n_in_window, 1000);
    assert_int_equal(stats->n_bytes_in_window, 100 * 1000);
    assert_int_equal(stats->n_failed, 0);
    assert_int_equal(server.n_opened, 3);
    assert_true(stats->last_ns >= bed->step.from_ns);
}

static void load_immediate_answers_are_counted(void **state) {
    struct bed *bed = *state;
    count_requests(bed, 1000);
    server.steps = 0;
    assert_int_equal(bench_histogram_total(&run(bed)->latency), 1000);
}

static void load_connection_without_descriptor_is_stepped_by_time(void **state) {
    struct bed *bed = *state;
    count_requests(bed, 10);
    server.by_time = true;
    assert_int_equal(bench_histogram_total(&run(bed)->latency), 10);
}

static void load_warm_up_is_not_measured(void **state) {
    struct bed *bed = *state;
    bed->step.from_ns = clock_now_ns() + 200 * MS;
    count_requests(bed, 10);
    const struct bench_stats *stats = run(bed);
    assert_true(server.n_begun > 10);
    assert_int_equal(bench_histogram_total(&stats->latency), 10);
    assert_int_equal(bench_counter_get(&stats->n_answered), server.n_begun);
}

static void load_duration_ends_step(void **state) {
    struct bed *bed = *state;
    bed->step.until_ns = clock_now_ns() + 200 * MS;
    const struct bench_stats *stats = run(bed);
    assert_true(clock_now_ns() >= bed->step.until_ns);
    assert_int_equal(bench_histogram_total(&stats->latency), server.n_begun);
    assert_true(server.n_begun > 0);
}

static void load_refusals_are_counted_without_back_off(void **state) {
    struct bed *bed = *state;
    count_requests(bed, 100);
    server.fail_every = 4;
    const struct bench_stats *stats = run(bed);
    assert_int_equal(stats->n_failed, 25);
    assert_int_equal(bench_histogram_total(&stats->latency), 75);
    assert_int_equal(stats->n_in_window, 75);
    assert_int_equal(stats->n_failures, 1);
    assert_int_equal(stats->failures[0].http_status, 503);
    assert_string_equal(stats->failures[0].first, "as told");
}

/* An unreachable server is retried after a back-off, not in a busy loop. */
static void load_failed_connection_backs_off(void **state) {
    struct bed *bed = *state;
    server.fail_every = 1;
    server.failure = ST_IO;
    bed->step.until_ns = clock_now_ns() + 250 * MS;
    const struct bench_stats *stats = run(bed);
    assert_true(stats->n_failed >= 3 && stats->n_failed <= 9);
}

static void load_reconnect_opens_connection_per_request(void **state) {
    struct bed *bed = *state;
    bed->step.reconnect = true;
    count_requests(bed, 50);
    assert_int_equal(bench_histogram_total(&run(bed)->latency), 50);
    assert_int_equal(server.n_opened, 50);
    assert_true(server.n_most_open <= 3);
}

static void load_open_loop_sends_due_requests(void **state) {
    struct bed *bed = *state;
    bed->options.rate = 1000;
    bed->step.until_ns = bed->options.start_ns + 50 * MS;
    const struct bench_stats *stats = run(bed);
    assert_int_equal(bench_histogram_total(&stats->latency) + stats->n_unsent, 50);
    assert_int_equal(server.n_begun, bench_histogram_total(&stats->latency));
    assert_int_equal(bench_histogram_total(&stats->lag), server.n_begun);
}

static void load_open_loop_sends_requested_count(void **state) {
    struct bed *bed = *state;
    bed->options.rate = 10000;
    count_requests(bed, 20);
    const struct bench_stats *stats = run(bed);
    assert_int_equal(bench_histogram_total(&stats->latency), 20);
    assert_int_equal(stats->n_unsent, 0);
}

/* Without a free connection requests start late, which counts as latency, or are never sent. */
static void load_slow_server_leaves_requests_unsent(void **state) {
    struct bed *bed = *state;
    server.never = true;
    bed->options.rate = 100;
    bed->step.until_ns = bed->options.start_ns + 500 * MS;
    bed->step.give_up_ns = bed->step.until_ns + 20 * MS;
    const struct bench_stats *stats = run(bed);
    assert_int_equal(server.n_begun, 3);
    assert_int_equal(stats->n_abandoned, 3);
    assert_int_equal(stats->n_unsent, 47);
    assert_int_equal(bench_histogram_total(&stats->latency), 0);
}

static void load_end_of_step_can_be_moved(void **state) {
    struct bed *bed = *state;
    server.never = true;
    bed->step.until_ns = clock_now_ns();
    bed->step.give_up_ns = 0;
    (void)run(bed);
    assert_int_equal(server.n_begun, 0);
}

#define LOAD_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        LOAD_TEST(load_closed_loop_sends_requested_count),
        LOAD_TEST(load_immediate_answers_are_counted),
        LOAD_TEST(load_connection_without_descriptor_is_stepped_by_time),
        LOAD_TEST(load_warm_up_is_not_measured),
        LOAD_TEST(load_duration_ends_step),
        LOAD_TEST(load_refusals_are_counted_without_back_off),
        LOAD_TEST(load_failed_connection_backs_off),
        LOAD_TEST(load_reconnect_opens_connection_per_request),
        LOAD_TEST(load_open_loop_sends_due_requests),
        LOAD_TEST(load_open_loop_sends_requested_count),
        LOAD_TEST(load_slow_server_leaves_requests_unsent),
        LOAD_TEST(load_end_of_step_can_be_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
