/* The end of a turn: what was put off to it runs once, in order, and before the loop looks for
 * anything else. */
#include "core/event/turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "core/event/worker.h"

/* What happened, a letter each. */
struct world {
    struct worker *worker;
    char text[16];
    size_t n;
    struct task {
        struct turn_task task;
        struct world *world;
        struct task *then; /* asked for when it has run */
        uint64_t takes_ns;
        char letter;
    } tasks[4];
    struct note {
        struct worker_msg msg;
        struct world *world;
        void (*act)(struct world *world);
    } notes[2];
    struct alarm alarm;
    uint64_t seen_ns;
};

static void say(struct world *world, char letter) {
    world->text[world->n++] = letter;
    assert_true(world->n < sizeof world->text);
}

static void ask(struct world *world, size_t i) {
    turn_ask(worker_turn(world->worker), &world->tasks[i].task);
}

static void run_task(struct turn_task *task) {
    struct task *self = (struct task *)task;
    struct turn *turn = worker_turn(self->world->worker);
    say(self->world, self->letter);
    self->world->seen_ns = turn->spent_ns;
    turn->spent_ns += self->takes_ns;
    if (self->then) {
        turn_ask(turn, &self->then->task);
        self->then = NULL;
    }
}

static void run_note(struct worker_msg *msg) {
    struct note *note = (struct note *)msg;
    say(note->world, '.');
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

static void ask_for_three(struct world *world) {
    post(world, 1, stop); /* the loop has to look for it: that is the next turn */
    ask(world, 1);
    ask(world, 0);
    ask(world, 1);
    ask(world, 2);
    say(world, '-');
}

static void tasks_run_at_the_end_of_the_turn(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, ask_for_three);
    assert_string_equal(world.text, ".-bac.");
}

static void a_task_asks_for_more(void **state) {
    struct world world = {0};
    (void)state;
    world.tasks[0].then = &world.tasks[3];
    world.tasks[3].then = &world.tasks[3]; /* once more itself */
    run(&world, ask_for_three);
    assert_string_equal(world.text, ".-bacd.d"); /* others have their turn in between */
}

/* Asks for itself a hundred times, while nothing else wakes the loop. */
struct chain {
    struct turn_task task;
    struct worker *worker;
    struct worker_msg msg;
    int left;
};

static void run_link(struct turn_task *task) {
    struct chain *chain = (struct chain *)task;
    if (--chain->left > 0) {
        turn_ask(worker_turn(chain->worker), task);
    } else {
        worker_stop(chain->worker);
    }
}

static void run_first(struct worker_msg *msg) {
    struct chain *chain = (struct chain *)(void *)((char *)msg - offsetof(struct chain, msg));
    turn_ask(worker_turn(chain->worker), &chain->task);
}

static void the_loop_does_not_sleep_meanwhile(void **state) {
    struct chain chain = {.task.run = run_link, .msg.run = run_first, .left = 100};
    struct error err;
    (void)state;
    assert_int_equal(worker_new("chain", &chain.worker, &err), ST_OK);
    worker_post(chain.worker, &chain.msg);
    worker_run(chain.worker);
    assert_int_equal(chain.left, 0);
    worker_free(chain.worker);
}

static void ring(struct alarm *alarm) {
    struct world *world = (struct world *)(void *)((char *)alarm - offsetof(struct world, alarm));
    say(world, '!');
    ask(world, 0);
    post(world, 1, stop);
}

static void set_an_alarm(struct world *world) {
    world->alarm.ring = ring;
    assert_true(alarm_set(worker_alarms(world->worker), &world->alarm, clock_now_ns()));
}

static void what_a_timer_asks_for_is_not_kept_waiting(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, set_an_alarm);
    assert_string_equal(world.text, ".!a.");
}

static void ask_again(struct world *world) {
    ask(world, 2);
    post(world, 0, stop);
}

static void ask_for_two(struct world *world) {
    world->tasks[0].takes_ns = 70;
    ask(world, 0);
    ask(world, 1);
    post(world, 1, ask_again);
}

static void the_time_spent_is_that_of_one_turn(void **state) {
    struct world world = {0};
    (void)state;
    world.tasks[1].then = &world.tasks[3];
    run(&world, ask_for_two);
    assert_string_equal(world.text, ".abd.c.");
    assert_int_equal(world.seen_ns, 0); /* by c, in a turn of its own */
}

static void ask_and_stop(struct world *world) {
    world->tasks[0].takes_ns = 70;
    ask(world, 0);
    ask(world, 1);
    stop(world);
}

static void nothing_is_left_behind(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, ask_and_stop);
    assert_string_equal(world.text, ".ab");
    assert_int_equal(world.seen_ns, 70); /* by b: a had spent it */
}

static void end_it_when_it_is_full(struct world *world) {
    struct turn *turn = worker_turn(world->worker);
    world->tasks[0].takes_ns = 70;
    world->tasks[1].then = &world->tasks[3];
    ask(world, 0);
    ask(world, 1);
    assert_false(turn_end_full(turn));
    say(world, '-');
    turn->full = true;
    assert_true(turn_end_full(turn));
    assert_false(turn->full);
    assert_int_equal(turn->spent_ns, 0);
    assert_false(turn_end_full(turn));
    say(world, '=');
    ask(world, 2);
    post(world, 1, stop);
}

static void a_full_turn_ends_before_the_next_event(void **state) {
    struct world world = {0};
    (void)state;
    run(&world, end_it_when_it_is_full);
    assert_string_equal(world.text, ".-ab=dc."); /* what a task asks for is of the next */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_run_at_the_end_of_the_turn),
        cmocka_unit_test(a_task_asks_for_more),
        cmocka_unit_test(the_loop_does_not_sleep_meanwhile),
        cmocka_unit_test(what_a_timer_asks_for_is_not_kept_waiting),
        cmocka_unit_test(the_time_spent_is_that_of_one_turn),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(a_full_turn_ends_before_the_next_event),
    };
    return cmocka_run_group_tests_name("loop/turn", tests, NULL, NULL);
}
