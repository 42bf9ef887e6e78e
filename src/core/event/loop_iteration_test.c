/* Deferred tasks run once, in order, at the end of the iteration, and before the loop polls
 * again. */
#include "core/base/compiler.h"
#include "core/event/loop_iteration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/event/worker.h"

/* The events, a letter for each. */
struct world {
    struct worker *worker;
    char text[16];
    size_t n;
    struct task {
        struct deferred_task task;
        struct world *world;
        struct task *then; /* deferred when it has run */
        uint64_t takes_ns;
        char letter;
    } tasks[4];
    struct note {
        struct worker_msg msg;
        struct world *world;
        void (*act)(struct world *world);
    } notes[2];
    struct timer timer;
    uint64_t seen_ns;
};

static void record(struct world *world, char letter) {
    world->text[world->n++] = letter;
    assert_true(world->n < sizeof world->text);
}

static void defer(struct world *world, size_t i) {
    loop_iteration_defer(worker_loop_iteration(world->worker), &world->tasks[i].task);
}

static bool run_task(struct deferred_task *task) {
    struct task *self = (struct task *)task;
    struct loop_iteration *iteration = worker_loop_iteration(self->world->worker);
    record(self->world, self->letter);
    self->world->seen_ns = iteration->spent_ns;
    iteration->spent_ns += self->takes_ns;
    struct task *then = self->then;
    self->then = NULL;
    if (then) {
        loop_iteration_defer(iteration, &then->task); /* not itself */
    }
    return then == self;
}

static void run_note(struct worker_msg *msg) {
    struct note *note = (struct note *)msg;
    record(note->world, '.');
    note->act(note->world);
}

static void post(struct world *world, size_t i, void (*act)(struct world *world)) {
    world->notes[i] = (struct note){.msg.run = run_note, .world = world, .act = act};
    worker_post(world->worker, &world->notes[i].msg);
}

static void stop(struct world *world) {
    worker_stop(world->worker);
}

/* Runs `first` on a worker, until `stop`. */
static void run(struct world *world, void (*first)(struct world *world)) {
    struct error err;
    assert_int_equal(worker_new("turns", &world->worker, &err), ST_OK);
    for (size_t i = 0; i < 4; i++) {
        world->tasks[i].task.run = run_task;
        world->tasks[i].world = world;
        world->tasks[i].letter = (char)('a' + i);
    }
    post(world, 0, first);
    worker_run(world->worker);
    worker_free(world->worker);
}

static void defer_three(struct world *world) {
    post(world, 1, stop); /* the loop has to poll for it: the next iteration */
    defer(world, 1);
    defer(world, 0);
    defer(world, 1);
    defer(world, 2);
    record(world, '-');
}

static void deferred_task_runs_once_at_end_of_iteration(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, defer_three);
    assert_string_equal(world.text, ".-bac.");
}

static void deferred_task_may_defer_another(void **state) {
    struct world world = {0};
    (void)state;
    world.tasks[0].then = &world.tasks[3];
    world.tasks[3].then = &world.tasks[3]; /* itself, once more */
    run(&world, defer_three);
    assert_string_equal(world.text, ".-bacd.d"); /* other tasks run in between */
}

/* Defers itself a hundred times, while nothing else wakes the loop. */
struct chain {
    struct deferred_task task;
    struct worker *worker;
    struct worker_msg msg;
    int left;
};

static bool run_link(struct deferred_task *task) {
    struct chain *chain = (struct chain *)task;
    if (--chain->left == 0) {
        worker_stop(chain->worker);
    }
    return chain->left > 0;
}

static void run_first(struct worker_msg *msg) {
    struct chain *chain = CONTAINER_OF(msg, struct chain, msg);
    loop_iteration_defer(worker_loop_iteration(chain->worker), &chain->task);
}

static void deferred_task_pending_keeps_loop_awake(void **state) {
    struct chain chain = {.task.run = run_link, .msg.run = run_first, .left = 100};
    struct error err;
    (void)state;
    assert_int_equal(worker_new("chain", &chain.worker, &err), ST_OK);
    worker_post(chain.worker, &chain.msg);
    worker_run(chain.worker);
    assert_int_equal(chain.left, 0);
    worker_free(chain.worker);
}

static void defer_last_first(struct world *world) {
    world->tasks[0].task.runs_last = world->tasks[3].task.runs_last = true;
    world->tasks[2].then = &world->tasks[3]; /* in time: what it produced is sent at once */
    defer(world, 0);
    defer(world, 1);
    defer(world, 2);
    post(world, 1, stop);
}

static void deferred_task_runs_last_after_all_others(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, defer_last_first);
    assert_string_equal(world.text, ".bcad.");
}

static void defer_within_last(struct world *world) {
    world->tasks[0].task.runs_last = true;
    world->tasks[0].then = &world->tasks[1];
    defer(world, 0);
    post(world, 1, stop);
}

static void deferred_task_of_a_last_one_runs_before_poll(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, defer_within_last);
    assert_string_equal(world.text, ".ab.");
}

static void on_expire(struct timer *timer) {
    struct world *world = CONTAINER_OF(timer, struct world, timer);
    record(world, '!');
    defer(world, 0);
    post(world, 1, stop);
}

static void start_the_timer(struct world *world) {
    world->timer.on_expire = on_expire;
    assert_true(timer_start(worker_timers(world->worker), &world->timer, clock_now_ns()));
}

static void deferred_task_from_timer_runs_before_poll(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, start_the_timer);
    assert_string_equal(world.text, ".!a.");
}

static void defer_and_post_stop(struct world *world) {
    defer(world, 2);
    post(world, 0, stop);
}

static void defer_two(struct world *world) {
    world->tasks[0].takes_ns = 70;
    defer(world, 0);
    defer(world, 1);
    post(world, 1, defer_and_post_stop);
}

static void loop_iteration_spent_ns_is_reset(void **state) {
    struct world world = {0};
    (void)state;
    world.tasks[1].then = &world.tasks[3];
    run(&world, defer_two);
    assert_string_equal(world.text, ".abd.c.");
    assert_int_equal(world.seen_ns, 0); /* by c, in an iteration of its own */
}

static void defer_and_stop(struct world *world) {
    world->tasks[0].takes_ns = 70;
    defer(world, 0);
    defer(world, 1);
    stop(world);
}

static void loop_iteration_stop_runs_pending_tasks(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, defer_and_stop);
    assert_string_equal(world.text, ".ab");
    assert_int_equal(world.seen_ns, 70); /* by b: a had spent it */
}

static void run_when_full(struct world *world) {
    struct loop_iteration *iteration = worker_loop_iteration(world->worker);
    world->tasks[0].takes_ns = 70;
    world->tasks[1].then = &world->tasks[3];
    defer(world, 0);
    defer(world, 1);
    assert_false(loop_iteration_run_if_full(iteration));
    record(world, '-');
    iteration->full = true;
    assert_true(loop_iteration_run_if_full(iteration));
    assert_false(iteration->full);
    assert_int_equal(iteration->spent_ns, 0);
    assert_false(loop_iteration_run_if_full(iteration));
    record(world, '=');
    defer(world, 2);
    post(world, 1, stop);
}

static void loop_iteration_full_runs_tasks_early(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, run_when_full);
    assert_string_equal(world.text, ".-ab=dc."); /* a task deferred by a task runs in the next
                                                    iteration */
}

static void burn(struct world *world) {
    struct timespec now;
    (void)world;
    uint64_t end_ns = 0, now_ns;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
        end_ns = end_ns > 0 ? end_ns : now_ns + UINT64_C(3000000);
    } while (now_ns < end_ns);
}

static void note_and_stop(struct world *world) {
    world->seen_ns = worker_loop_iteration(world->worker)->n_over_limit;
    stop(world);
}

static void burn_then_stop(struct world *world) {
    burn(world);
    post(world, 0, note_and_stop);
}

static void limit_then_burn(struct world *world) {
    loop_iteration_limit_cpu(worker_loop_iteration(world->worker), 2000000);
    post(world, 1, burn_then_stop);
}

static void loop_iteration_over_cpu_limit_is_counted(void **state) {
    struct world world = {0};
    (void)state;
    log_level_set(LOG_ERROR, false);
    run(&world, limit_then_burn);
    assert_int_equal(world.seen_ns, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred_task_runs_once_at_end_of_iteration),
        cmocka_unit_test(deferred_task_may_defer_another),
        cmocka_unit_test(deferred_task_pending_keeps_loop_awake),
        cmocka_unit_test(deferred_task_runs_last_after_all_others),
        cmocka_unit_test(deferred_task_of_a_last_one_runs_before_poll),
        cmocka_unit_test(deferred_task_from_timer_runs_before_poll),
        cmocka_unit_test(loop_iteration_spent_ns_is_reset),
        cmocka_unit_test(loop_iteration_stop_runs_pending_tasks),
        cmocka_unit_test(loop_iteration_full_runs_tasks_early),
        cmocka_unit_test(loop_iteration_over_cpu_limit_is_counted),
    };
    return cmocka_run_group_tests_name("core/event/loop_iteration", tests, NULL, NULL);
}
