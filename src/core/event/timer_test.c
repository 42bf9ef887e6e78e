/* Timers expire when the fake clock reaches their time, in order, once, and not when they were
 * stopped. Real time passes meanwhile; no timer expires until the fake clock moves. */
#include "core/base/compiler.h"
#include "core/event/timer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "core/event/loop_iteration.h"
#include "core/event/worker.h"

enum { N = 5, BEGIN_NS = 1000000000, MS = 1000000 };

struct timer_entry {
    struct timer timer;
    struct fixture *fixture;
    uint64_t expired_ns;
    int order; /* from 1; 0: did not expire */
    int n_restarts;
};

struct fixture {
    struct worker *worker;
    struct timer_entry entries[N];
    int n_expired;
    int expected;
    struct worker_msg msg;
    void (*step)(struct fixture *fixture);
};

static void on_expire(struct timer *timer) {
    struct timer_entry *entry = (struct timer_entry *)(void *)timer;
    struct fixture *fixture = entry->fixture;
    entry->expired_ns = clock_now_ns();
    entry->order = ++fixture->n_expired;
    assert_true(worker_is_current(fixture->worker));
    if (entry->n_restarts > 0) {
        entry->n_restarts--;
        timer_start(worker_timers(fixture->worker), timer, entry->expired_ns + MS);
        clock_set_fake_ns(entry->expired_ns + MS);
    }
    if (fixture->n_expired == fixture->expected) {
        worker_stop(fixture->worker);
    }
}

static void on_step(struct worker_msg *msg) {
    struct fixture *fixture = CONTAINER_OF(msg, struct fixture, msg);
    fixture->step(fixture);
}

static void run(struct fixture *fixture, void (*step)(struct fixture *fixture), int expected) {
    struct error err;
    *fixture = (struct fixture){.expected = expected, .step = step, .msg.run = on_step};
    for (int i = 0; i < N; i++) {
        fixture->entries[i] =
            (struct timer_entry){.timer.on_expire = on_expire, .fixture = fixture};
    }
    clock_set_fake_ns(BEGIN_NS);
    assert_int_equal(worker_new("timers", &fixture->worker, &err), ST_OK);
    worker_post(fixture->worker, &fixture->msg);
    worker_run(fixture->worker);
    worker_free(fixture->worker);
    clock_set_fake_ns(0);
}

static void start_timer(struct fixture *fixture, int entry, uint64_t due_ns) {
    timer_start(worker_timers(fixture->worker), &fixture->entries[entry].timer, BEGIN_NS + due_ns);
}

/* ---- order of expiry ------------------------------------------------------------------------- */

static void start_five_and_pass_four(struct fixture *fixture) {
    start_timer(fixture, 0, 3 * MS);
    start_timer(fixture, 1, 2 * MS);
    start_timer(fixture, 2, 2 * MS);
    start_timer(fixture, 2, 4 * MS); /* moved */
    start_timer(fixture, 3, 1 * MS);
    start_timer(fixture, 4, 900 * (uint64_t)MS);
    nanosleep(&(struct timespec){.tv_nsec = 10 * MS}, NULL);
    assert_int_equal(fixture->n_expired, 0); /* only the loop expires timers */
    clock_set_fake_ns(BEGIN_NS + 4 * MS);
}

static void stop_the_last(struct fixture *fixture) {
    start_five_and_pass_four(fixture);
    timer_stop(worker_timers(fixture->worker), &fixture->entries[4].timer);
    timer_stop(worker_timers(fixture->worker), &fixture->entries[4].timer);
}

static void timer_expires_in_due_order(void **state) {
    (void)state;
    static struct fixture fixture;
    static const int orders[N] = {3, 2, 4, 1, 0};
    run(&fixture, stop_the_last, 4);
    for (int i = 0; i < N; i++) {
        assert_int_equal(fixture.entries[i].order, orders[i]);
    }
}

/* ---- without memory -------------------------------------------------------------------------- */

/* Of a heap that cannot grow. */
static void start_without_memory(struct fixture *fixture, int entry, uint64_t due_ns) {
    struct timer_heap *heap = &worker_timers(fixture->worker)->heap;
    struct timer_heap before = *heap;
    heap->n = heap->cap = (size_t)1 << 44; /* no machine has memory for twice as many */
    start_timer(fixture, entry, due_ns);
    assert_int_equal(fixture->entries[entry].timer.node.heap_index, 0);
    assert_true(timer_is_started(&fixture->entries[entry].timer));
    *heap = before;
}

static void start_some_without_memory(struct fixture *fixture) {
    start_without_memory(fixture, 0, 900 * (uint64_t)MS);
    start_without_memory(fixture, 1, 2 * MS);
    start_without_memory(fixture, 2, 3 * MS);
    start_without_memory(fixture, 2, 1 * MS); /* moved */
    start_timer(fixture, 3, 1 * MS);
    start_without_memory(fixture, 4, 900 * (uint64_t)MS);
    start_timer(fixture, 4, 1 * MS); /* there is memory now */
    timer_stop(worker_timers(fixture->worker), &fixture->entries[0].timer);
    assert_false(timer_is_started(&fixture->entries[0].timer));
    clock_set_fake_ns(BEGIN_NS + 4 * MS);
}

static void timer_without_memory_expires_too(void **state) {
    (void)state;
    static struct fixture fixture;
    run(&fixture, start_some_without_memory, 4);
    assert_int_equal(fixture.entries[0].order, 0);
    for (int i = 1; i < N; i++) {
        assert_true(fixture.entries[i].order > 0);
    }
}

/* ---- not before the due time ----------------------------------------------------------------- */

static void *advance_clock_later(void *arg) {
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 20 * MS}, NULL);
    clock_set_fake_ns(BEGIN_NS + 2 * MS);
    return NULL;
}

static void start_one_before_clock_advances(struct fixture *fixture) {
    pthread_t thread;
    start_timer(fixture, 0, 2 * MS);
    assert_int_equal(pthread_create(&thread, NULL, advance_clock_later, NULL), 0);
    pthread_detach(thread);
}

/* libuv's timer, which follows real time, expires before that without effect. */
static void timer_never_expires_before_clock(void **state) {
    (void)state;
    static struct fixture fixture;
    run(&fixture, start_one_before_clock_advances, 1);
    assert_true(fixture.entries[0].expired_ns == BEGIN_NS + 2 * MS);
}

/* ---- after a stop of the process ------------------------------------------------------------- */

/* libuv may run a timer twice without a poll in between: others of the same pass set its clock. */
static void late_timer_waits_for_a_poll(void **state) {
    struct loop_iteration iteration = {.n_polls = 7};
    struct late_timer late = {0};
    (void)state;
    assert_int_equal(late_timer_check(&late, &iteration, 0, 100 * MS), TIMER_IN_TIME);
    assert_int_equal(late_timer_check(&late, &iteration, 0, 101 * MS), TIMER_WAITS_FOR_POLL);
    assert_int_equal(late_timer_check(&late, &iteration, 101 * MS, 103 * MS), TIMER_WAITS_FOR_POLL);
    iteration.n_polls++;
    assert_int_equal(late_timer_check(&late, &iteration, 103 * MS, 500 * MS), TIMER_AFTER_POLL);
    assert_int_equal(late_timer_check(&late, &iteration, 500 * MS, 501 * MS), TIMER_IN_TIME);
}

/* ---- restart --------------------------------------------------------------------------------- */

static void start_one_that_restarts_itself(struct fixture *fixture) {
    fixture->entries[0].n_restarts = 2;
    start_timer(fixture, 0, 0); /* due at once */
}

static void timer_restarted_in_callback_expires_again(void **state) {
    (void)state;
    static struct fixture fixture;
    run(&fixture, start_one_that_restarts_itself, 3);
    assert_int_equal(fixture.entries[0].order, 3);
    assert_int_equal(fixture.entries[0].n_restarts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_expires_in_due_order),
        cmocka_unit_test(timer_without_memory_expires_too),
        cmocka_unit_test(timer_never_expires_before_clock),
        cmocka_unit_test(late_timer_waits_for_a_poll),
        cmocka_unit_test(timer_restarted_in_callback_expires_again),
    };
    return cmocka_run_group_tests_name("core/event/timer", tests, NULL, NULL);
}
