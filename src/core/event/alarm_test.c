/* Alarms ring when the clock says so, in order, once, and not when they were cleared. The clock is
 * driven: real time passes, and nothing rings until the clock moves. */
#include "core/event/alarm.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "core/event/worker.h"

enum { N = 5, BEGIN_NS = 1000000000, MS = 1000000 };

struct bell {
    struct alarm alarm;
    struct belfry *belfry;
    uint64_t rung_ns;
    int turn; /* from 1; 0: never rang */
    int again;
};

struct belfry {
    struct worker *worker;
    struct bell bells[N];
    int n_rung;
    int expected;
    struct worker_msg msg;
    void (*step)(struct belfry *belfry);
};

static void ring(struct alarm *alarm) {
    struct bell *bell = (struct bell *)(void *)alarm;
    struct belfry *belfry = bell->belfry;
    bell->rung_ns = clock_now_ns();
    bell->turn = ++belfry->n_rung;
    assert_true(worker_is_current(belfry->worker));
    if (bell->again > 0) {
        bell->again--;
        assert_true(alarm_set(worker_alarms(belfry->worker), alarm, bell->rung_ns + MS));
        clock_drive_ns(bell->rung_ns + MS);
    }
    if (belfry->n_rung == belfry->expected) {
        worker_stop(belfry->worker);
    }
}

static void on_step(struct worker_msg *msg) {
    struct belfry *belfry = (struct belfry *)(void *)((char *)msg - offsetof(struct belfry, msg));
    belfry->step(belfry);
}

static void run(struct belfry *belfry, void (*step)(struct belfry *belfry), int expected) {
    struct error err;
    *belfry = (struct belfry){.expected = expected, .step = step, .msg.run = on_step};
    for (int i = 0; i < N; i++) {
        belfry->bells[i] = (struct bell){.alarm.ring = ring, .belfry = belfry};
    }
    clock_drive_ns(BEGIN_NS);
    assert_int_equal(worker_new("bells", &belfry->worker, &err), ST_OK);
    worker_post(belfry->worker, &belfry->msg);
    worker_run(belfry->worker);
    worker_free(belfry->worker);
    clock_drive_ns(0);
}

static void set(struct belfry *belfry, int bell, uint64_t due_ns) {
    assert_true(
        alarm_set(worker_alarms(belfry->worker), &belfry->bells[bell].alarm, BEGIN_NS + due_ns));
}

/* ---- in order -------------------------------------------------------------------------------- */

static void set_five_and_pass_four(struct belfry *belfry) {
    set(belfry, 0, 3 * MS);
    set(belfry, 1, 2 * MS);
    set(belfry, 2, 2 * MS);
    set(belfry, 2, 4 * MS); /* moved */
    set(belfry, 3, 1 * MS);
    set(belfry, 4, 900 * (uint64_t)MS);
    nanosleep(&(struct timespec){.tv_nsec = 10 * MS}, NULL);
    assert_int_equal(belfry->n_rung, 0); /* only the loop rings */
    clock_drive_ns(BEGIN_NS + 4 * MS);
}

static void clear_the_last(struct belfry *belfry) {
    set_five_and_pass_four(belfry);
    alarm_clear(worker_alarms(belfry->worker), &belfry->bells[4].alarm);
    alarm_clear(worker_alarms(belfry->worker), &belfry->bells[4].alarm);
}

static void test_in_the_order_of_their_times(void **state) {
    (void)state;
    static struct belfry belfry;
    static const int turns[N] = {3, 2, 4, 1, 0};
    run(&belfry, clear_the_last, 4);
    for (int i = 0; i < N; i++) {
        assert_int_equal(belfry.bells[i].turn, turns[i]);
    }
}

/* ---- not before ------------------------------------------------------------------------------ */

static void *move_the_clock_later(void *arg) {
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 20 * MS}, NULL);
    clock_drive_ns(BEGIN_NS + 2 * MS);
    return NULL;
}

static void set_one_before_the_clock_moves(struct belfry *belfry) {
    pthread_t thread;
    set(belfry, 0, 2 * MS);
    assert_int_equal(pthread_create(&thread, NULL, move_the_clock_later, NULL), 0);
    pthread_detach(thread);
}

/* The timer of the loop, which knows real time only, looks in vain before that. */
static void test_not_before_the_clock_says_so(void **state) {
    (void)state;
    static struct belfry belfry;
    run(&belfry, set_one_before_the_clock_moves, 1);
    assert_true(belfry.bells[0].rung_ns == BEGIN_NS + 2 * MS);
}

/* ---- again ----------------------------------------------------------------------------------- */

static void set_one_that_sets_itself(struct belfry *belfry) {
    belfry->bells[0].again = 2;
    set(belfry, 0, 0); /* due at once */
}

static void test_one_that_rings_may_be_set_again(void **state) {
    (void)state;
    static struct belfry belfry;
    run(&belfry, set_one_that_sets_itself, 3);
    assert_int_equal(belfry.bells[0].turn, 3);
    assert_int_equal(belfry.bells[0].again, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_the_order_of_their_times),
        cmocka_unit_test(test_not_before_the_clock_says_so),
        cmocka_unit_test(test_one_that_rings_may_be_set_again),
    };
    return cmocka_run_group_tests_name("loop/alarm", tests, NULL, NULL);
}
