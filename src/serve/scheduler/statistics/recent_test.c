/* What a version was busy with lately: while it executes, while requests wait in several classes,
 * and after readings at several distances. */
#include "serve/scheduler/statistics/recent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_rig.h"
#include "serve/scheduler/statistics/statistics.h"

enum { MS_NS = 1000000 };

static const struct model_config two_instances = {
    .latest_count = 1, .run_on = RUN_ON_INSTANCE, .instance_count = 2};
static const struct model_config one_instance = {
    .latest_count = 1, .run_on = RUN_ON_INSTANCE, .instance_count = 1};

static void pass_ms(uint64_t ms) {
    clock_set_fake_ns(clock_now_ns() + ms * MS_NS);
}

static void assert_recent(struct rig *rig, double utilization, uint64_t queue_ms) {
    struct model_statistics now;
    struct model_recent recent;
    model_version_statistics(rig->version, &now);
    model_version_recent(rig->version, &now, &recent);
    assert_float_equal(recent.utilization, utilization, 1e-9);
    assert_int_equal(recent.queue_ns, queue_ms * MS_NS);
}

static void open_at_rest(struct rig *rig, const struct model_config *config) {
    clock_set_fake_ns(1000 * MS_NS);
    rig_open(rig, config, 0);
    assert_recent(rig, 0, 0);
}

static void close_rig(struct rig *rig) {
    clock_set_fake_ns(0);
    rig_close(rig);
}

/* One executes and one waits, which is seen before either ends. */
static void execute_and_wait(struct rig *rig) {
    pass_ms(10);
    atomic_store(&rig->model->gate_closed, true);
    rig_send(rig, 0);
    rig_await_started(rig, 1);
    pass_ms(10);
    rig_send(rig, 1);
    pass_ms(20);
    assert_recent(rig, 30.0 / 40, 20); /* the second waits since 20 ms */
    atomic_store(&rig->model->gate_closed, false);
}

static void recent_counts_what_executes_and_waits_now(void **state) {
    struct rig rig;
    (void)state;
    open_at_rest(&rig, &one_instance);
    rig_run(&rig, execute_and_wait, 2);
    pass_ms(20);
    version_stop(rig.version);
    assert_recent(&rig, 30.0 / 60, 10); /* 0 and 20 ms on average */
    close_rig(&rig);
}

static void execute_for_a_second(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_send(rig, (size_t)rig->n_done);
    rig_await_started(rig, rig->n_done + 1);
    pass_ms(1000);
    atomic_store(&rig->model->gate_closed, false);
}

/* A reading is compared with one that is at least 10 s old, and with none that is older than the
 * next such one. */
static void recent_forgets_what_was_before(void **state) {
    struct rig rig;
    (void)state;
    open_at_rest(&rig, &two_instances);
    rig_run(&rig, execute_for_a_second, 1);
    version_stop(rig.version); /* the execution is counted */
    pass_ms(9000);
    assert_recent(&rig, 1.0 / 20, 0); /* of two instances; the reading is kept */
    pass_ms(5000);
    assert_recent(&rig, 1.0 / 30, 0); /* compared with the loading */
    pass_ms(5000);
    assert_recent(&rig, 0, 0); /* compared with the reading after 10 s */
    assert_recent(&rig, 0, 0); /* a second reader sees the same */
    pass_ms(3600000);
    assert_recent(&rig, 0, 0);
    close_rig(&rig);
}

/* ---- the first in line ----------------------------------------------------------------------- */

static void add_waiting(struct priority_queue *queue, struct call *call, struct call_run *run,
                        size_t level, bool deprioritized, uint64_t queued_ns) {
    *call = (struct call){.run = run, .queued_ns = queued_ns};
    *run = (struct call_run){.queue_deadline = {.level = level, .deprioritized = deprioritized}};
    priority_queue_add(queue, call);
}

static void recent_oldest_call_is_found_in_each_class(void **state) {
    static struct call calls[5];
    static struct call_run runs[5];
    struct arena *arena = arena_new(NULL, 0);
    struct priority_queue queue;
    struct error err;
    (void)state;
    assert_int_equal(priority_queue_init(&queue, arena, 3, &err), ST_OK);
    assert_int_equal(priority_queue_oldest_ns(&queue, 100), 100);
    add_waiting(&queue, &calls[0], &runs[0], 1, false, 50);
    add_waiting(&queue, &calls[1], &runs[1], 1, false, 60);
    assert_int_equal(priority_queue_oldest_ns(&queue, 100), 50);
    add_waiting(&queue, &calls[2], &runs[2], 2, true, 20);
    add_waiting(&queue, &calls[3], &runs[3], 2, false, 30);
    add_waiting(&queue, &calls[4], &runs[4], 0, false, 70);
    assert_int_equal(priority_queue_oldest_ns(&queue, 100), 20);
    priority_queue_remove(&queue, &calls[2]);
    assert_int_equal(priority_queue_oldest_ns(&queue, 100), 30);
    priority_queue_remove(&queue, &calls[3]);
    priority_queue_remove(&queue, &calls[0]);
    assert_int_equal(priority_queue_oldest_ns(&queue, 100), 60);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recent_counts_what_executes_and_waits_now),
        cmocka_unit_test(recent_forgets_what_was_before),
        cmocka_unit_test(recent_oldest_call_is_found_in_each_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
