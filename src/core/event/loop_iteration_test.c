/* Deferred tasks run once, in order, at the end of the iteration, and before the loop polls
 * again. */
#include "core/base/compiler.h"
#include "core/event/loop_iteration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
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
    timer_start(worker_timers(world->worker), &world->timer, clock_now_ns());
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

/* ---- turns ----------------------------------------------------------------------------------- */

enum { TURNS = 6 };
static const uint64_t TURN_NS = 700000; /* three of them are more than an iteration's time */

struct turns {
    struct worker *worker;
    uint64_t now_ns;
    char text[64];
    size_t n, n_ran, n_wanted;
    struct waiting {
        struct loop_turn turn;
        struct worker_msg msg;
        struct timer timer;
        struct turns *turns;
        struct waiting *again, *ends; /* waits once more, or ends the wait of that one */
        char letter;
    } waiting[TURNS];
    struct worker_msg last, between;
};

static void turns_record(struct turns *turns, char letter) {
    turns->text[turns->n++] = letter;
    assert_true(turns->n < sizeof turns->text);
}

static void take_time(struct waiting *self) {
    turns_record(self->turns, self->letter);
    self->turns->n_ran++;
    self->turns->now_ns += TURN_NS;
    clock_set_fake_ns(self->turns->now_ns);
}

static void run_turn(struct loop_turn *turn) {
    struct waiting *self = (struct waiting *)turn;
    struct loop_iteration *iteration = worker_loop_iteration(self->turns->worker);
    take_time(self);
    if (self->again) {
        loop_iteration_wait(iteration, &self->again->turn);
        self->again = NULL;
    }
    if (self->ends) {
        loop_iteration_end_wait(iteration, &self->ends->turn);
    }
}

/* A message in each iteration, until all have run. */
static void run_between(struct worker_msg *msg) {
    struct turns *turns = CONTAINER_OF(msg, struct turns, between);
    if (turns->n == 0 || turns->text[turns->n - 1] != '.') {
        turns_record(turns, '.');
    }
    if (turns->n_ran < turns->n_wanted) {
        worker_post(turns->worker, &turns->between);
    } else {
        worker_stop(turns->worker);
    }
}

static void run_message(struct worker_msg *msg) {
    take_time(CONTAINER_OF(msg, struct waiting, msg));
}

static void expire_turn(struct timer *timer) {
    take_time(CONTAINER_OF(timer, struct waiting, timer));
}

static void run_turns(struct turns *turns, void (*begin)(struct worker_msg *msg)) {
    struct error err;
    assert_int_equal(worker_new("turns", &turns->worker, &err), ST_OK);
    for (size_t i = 0; i < TURNS; i++) {
        turns->waiting[i].turn.run = run_turn;
        turns->waiting[i].msg.run = run_message;
        turns->waiting[i].timer.on_expire = expire_turn;
        turns->waiting[i].turns = turns;
        turns->waiting[i].letter = (char)('a' + i);
    }
    turns->now_ns = UINT64_C(1000000000);
    clock_set_fake_ns(turns->now_ns);
    turns->last.run = begin;
    turns->between.run = run_between;
    worker_post(turns->worker, &turns->last);
    worker_run(turns->worker);
    worker_free(turns->worker);
    clock_set_fake_ns(0);
}

static void wait_for_turns(struct worker_msg *msg) {
    struct turns *turns = CONTAINER_OF(msg, struct turns, last);
    for (size_t i = 0; i < TURNS; i++) {
        loop_iteration_wait(worker_loop_iteration(turns->worker), &turns->waiting[i].turn);
        loop_iteration_wait(worker_loop_iteration(turns->worker), &turns->waiting[i].turn);
    }
    worker_post(turns->worker, &turns->between);
}

static void loop_iteration_turns_leave_time_for_other_events(void **state) {
    struct turns turns = {.n_wanted = TURNS};
    (void)state;
    run_turns(&turns, wait_for_turns);
    /* In order; after the third, which began in time, the loop polls. */
    assert_string_equal(turns.text, "abc.def.");
}

static void loop_iteration_turn_that_waits_again_is_behind_others(void **state) {
    struct turns turns = {.n_wanted = TURNS + 1};
    (void)state;
    turns.waiting[0].again = &turns.waiting[0];
    run_turns(&turns, wait_for_turns);
    assert_string_equal(turns.text, "abc.def.a.");
}

static void loop_iteration_wait_that_ended_has_no_turn(void **state) {
    struct turns turns = {.n_wanted = TURNS - 1};
    (void)state;
    turns.waiting[0].ends = &turns.waiting[1];
    run_turns(&turns, wait_for_turns);
    assert_string_equal(turns.text, "acd.ef.");
}

static void check_time(struct worker_msg *msg) {
    struct turns *turns = CONTAINER_OF(msg, struct turns, last);
    struct loop_iteration *iteration = worker_loop_iteration(turns->worker);
    for (int i = 0; i < 2; i++) { /* the first event reads no clock, the second begins */
        assert_false(loop_iteration_is_over(iteration));
    }
    clock_set_fake_ns(turns->now_ns + LOOP_EVENTS_NS - 1);
    assert_false(loop_iteration_is_over(iteration));
    clock_set_fake_ns(turns->now_ns + LOOP_EVENTS_NS);
    assert_true(loop_iteration_is_over(iteration));
    assert_false(loop_share_is_spent(&iteration->timers, LOOP_TIMERS_NS)); /* a time of its own */
    worker_stop(turns->worker);
}

static void loop_iteration_is_over_after_its_time(void **state) {
    struct turns turns = {0};
    (void)state;
    run_turns(&turns, check_time);
}

static void post_many(struct worker_msg *msg) {
    struct turns *turns = CONTAINER_OF(msg, struct turns, last);
    for (size_t i = 0; i < TURNS; i++) {
        worker_post(turns->worker, &turns->waiting[i].msg);
    }
    worker_post(turns->worker, &turns->between);
    loop_iteration_wait(worker_loop_iteration(turns->worker), &turns->waiting[0].turn);
}

/* Messages keep their order, and a turn comes between them. */
static void worker_messages_leave_time_for_other_events(void **state) {
    struct turns turns = {.n_wanted = TURNS + 2};
    (void)state;
    turns.waiting[0].again = &turns.waiting[0];
    run_turns(&turns, post_many);
    assert_string_equal(turns.text, "aabcadef.");
}

static void start_timers(struct worker_msg *msg) {
    struct turns *turns = CONTAINER_OF(msg, struct turns, last);
    for (size_t i = 0; i < TURNS; i++) {
        timer_start(worker_timers(turns->worker), &turns->waiting[i].timer, turns->now_ns + i);
    }
    turns->now_ns += 10;
    clock_set_fake_ns(turns->now_ns);
    worker_post(turns->worker, &turns->between);
}

static void worker_timers_leave_time_for_other_events(void **state) {
    struct turns turns = {.n_wanted = TURNS};
    (void)state;
    run_turns(&turns, start_timers);
    assert_non_null(strchr(strchr(turns.text, 'a'), '.'));
    assert_null(strstr(turns.text, "abcdef"));
}

/* Turns of which each is in pieces of 10 us, until it is over. */
struct pieces {
    struct loop_turn turn;
    struct loop_iteration *iteration;
    uint64_t most_ns, took_ns;
};

static void run_pieces(struct loop_turn *turn) {
    struct pieces *self = (struct pieces *)turn;
    uint64_t began_ns = clock_now_ns();
    do {
        clock_set_fake_ns(clock_now_ns() + 10000);
    } while (!loop_iteration_turn_is_over(self->iteration, self->most_ns));
    self->took_ns = clock_now_ns() - began_ns;
}

/* Returns: what the first of `n_waiting` turns took, each of which takes `most_ns` at most. */
static uint64_t first_turn_ns(size_t n_waiting, uint64_t most_ns) {
    uv_loop_t loop;
    struct loop_iteration iteration;
    struct pieces *all = calloc(n_waiting, sizeof(*all));
    assert_int_equal(uv_loop_init(&loop), 0);
    clock_set_fake_ns(UINT64_C(1000000000));
    loop_iteration_init(&iteration, &loop);
    for (size_t i = 0; i < n_waiting; i++) {
        all[i] =
            (struct pieces){.turn.run = run_pieces, .iteration = &iteration, .most_ns = most_ns};
        loop_iteration_wait(&iteration, &all[i].turn);
    }
    loop_iteration_run_deferred(&iteration);
    for (size_t i = 0; i < n_waiting; i++) {
        loop_iteration_end_wait(&iteration, &all[i].turn);
    }
    loop_iteration_close(&iteration);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    uint64_t took_ns = all[0].took_ns;
    free(all);
    clock_set_fake_ns(0);
    return took_ns;
}

static void loop_iteration_turn_is_shorter_when_many_wait(void **state) {
    (void)state;
    assert_int_equal(first_turn_ns(1, UINT64_MAX), LOOP_EVENTS_NS);
    assert_int_equal(first_turn_ns(26, UINT64_MAX), LOOP_EVENTS_NS);
    assert_int_equal(first_turn_ns(101, UINT64_MAX), LOOP_ROUND_NS / 100);
    assert_int_equal(first_turn_ns(20000, UINT64_MAX), LOOP_TURN_MIN_NS);
    assert_int_equal(first_turn_ns(1, 200000), 200000);
    assert_int_equal(first_turn_ns(20000, 200000), LOOP_TURN_MIN_NS);
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
        cmocka_unit_test(loop_iteration_turns_leave_time_for_other_events),
        cmocka_unit_test(loop_iteration_turn_that_waits_again_is_behind_others),
        cmocka_unit_test(loop_iteration_wait_that_ended_has_no_turn),
        cmocka_unit_test(loop_iteration_is_over_after_its_time),
        cmocka_unit_test(loop_iteration_turn_is_shorter_when_many_wait),
        cmocka_unit_test(worker_messages_leave_time_for_other_events),
        cmocka_unit_test(worker_timers_leave_time_for_other_events),
    };
    return cmocka_run_group_tests_name("core/event/loop_iteration", tests, NULL, NULL);
}
