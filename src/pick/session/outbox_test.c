/* Memory of what is said: who frees what, and when. */
#include "pick/session/outbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"

enum { MOST = 256 };

struct wire {
    struct pick_outbox outbox;
    struct arena *arena;
    void (*release[MOST])(void *cookie);
    void *cookies[MOST];
    size_t n_sent, n_finished, n_released;
};

static void on_send(void *user, const struct piece *pieces, size_t n_pieces,
                    void (*release)(void *cookie), void *cookie) {
    struct wire *wire = user;
    assert_true(n_pieces > 0 && pieces && wire->n_sent < MOST);
    wire->release[wire->n_sent] = release;
    wire->cookies[wire->n_sent++] = cookie;
}

static void on_finish(void *user, const struct error *err) {
    struct wire *wire = user;
    (void)err;
    wire->n_finished++;
}

static void on_release(void *cookie) {
    struct wire *wire = cookie;
    wire->n_released++;
}

static void open_wire(struct wire *wire) {
    struct pick_out out = {.send = on_send, .finish = on_finish, .user = wire};
    *wire = (struct wire){.arena = arena_new(NULL, 0)};
    pick_outbox_init(&wire->outbox, wire->arena, &out);
}

static void leave(struct wire *wire, size_t i) {
    if (wire->release[i]) {
        wire->release[i](wire->cookies[i]);
    }
}

static void nod(struct wire *wire) {
    struct ext_proc_answer answer = {.kind = EXT_PROC_RESPONSE_BODY};
    struct error err;
    assert_int_equal(pick_outbox_answer(&wire->outbox, &answer, NULL, &err), ST_OK);
}

static void pass(struct wire *wire, struct pick_kept *of) {
    struct piece piece = {"body", 4};
    struct ext_proc_answer answer = {.kind = EXT_PROC_RESPONSE_BODY,
                                     .body_change = EXT_PROC_BODY_SENT,
                                     .body = &piece,
                                     .n_body = 1};
    struct error err;
    assert_int_equal(pick_outbox_answer(&wire->outbox, &answer, of, &err), ST_OK);
}

/* The first answers are in the stream's own memory, and nobody is told when they have left. */
static void the_first_answers_are_the_streams(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    int64_t n_arenas = metric_read(METRIC_ARENAS);
    for (int i = 0; i < 4; i++) {
        nod(&wire);
        assert_null(wire.release[i]);
    }
    assert_int_equal(metric_read(METRIC_ARENAS), n_arenas);
    pick_outbox_fini(&wire.outbox);
    arena_free(wire.arena);
}

/* Of any number of answers only those that have not left cost memory, in whatever order they do. */
static void later_ones_are_freed_as_they_leave(void **state) {
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        struct wire wire;
        open_wire(&wire);
        for (size_t i = 0; i < MOST; i++) {
            nod(&wire);
        }
        assert_true(metric_read(METRIC_ARENAS) > 5);
        for (size_t i = 0; i < MOST; i++) {
            leave(&wire, backwards ? MOST - 1 - i : i);
        }
        assert_int_equal(metric_read(METRIC_ARENAS), 2); /* the stream's and that of the next */
        pick_outbox_fini(&wire.outbox);
        assert_int_equal(metric_read(METRIC_ARENAS), 1);
        arena_free(wire.arena);
    }
}

/* A message goes when the last of those who want its bytes lets go of it. */
static void a_message_stays_as_long_as_it_is_wanted(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    struct pick_message message = {STR("body"), on_release, &wire};
    struct pick_kept *kept = pick_keep(&wire.outbox, &message);
    pass(&wire, kept);
    pass(&wire, kept);
    pick_let_go(kept); /* whoever kept it */
    assert_int_equal(wire.n_released, 0);
    leave(&wire, 1);
    assert_int_equal(wire.n_released, 0);
    leave(&wire, 0);
    assert_int_equal(wire.n_released, 1);
    pick_outbox_fini(&wire.outbox);
    arena_free(wire.arena);
}

/* What is on its way outlives the session. */
static void answers_may_leave_late(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    for (size_t i = 0; i < 100; i++) {
        struct pick_message message = {STR("body"), on_release, &wire};
        struct pick_kept *kept = pick_keep(&wire.outbox, &message);
        pass(&wire, kept);
        pick_let_go(kept);
    }
    pick_outbox_fini(&wire.outbox);
    assert_int_equal(wire.n_released, 0);
    for (size_t i = 0; i < 100; i++) {
        leave(&wire, i);
    }
    assert_int_equal(wire.n_released, 100);
    assert_int_equal(metric_read(METRIC_ARENAS), 1);
    arena_free(wire.arena);
}

static void a_stream_ends_once(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    pick_outbox_finish(&wire.outbox, NULL);
    pick_outbox_finish(&wire.outbox, NULL);
    assert_int_equal(wire.n_finished, 1);
    pick_outbox_fini(&wire.outbox);
    arena_free(wire.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_answers_are_the_streams),
        cmocka_unit_test(later_ones_are_freed_as_they_leave),
        cmocka_unit_test(a_message_stays_as_long_as_it_is_wanted),
        cmocka_unit_test(answers_may_leave_late),
        cmocka_unit_test(a_stream_ends_once),
    };
    return cmocka_run_group_tests_name("outbox", tests, NULL, NULL);
}
