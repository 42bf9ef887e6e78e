/* Memory of sent messages: what is freed when. */
#include "pick/session/send_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"

enum { MOST = 256 };

struct wire {
    struct pick_send_queue send_queue;
    struct arena *arena;
    void (*release[MOST])(void *cookie);
    void *release_users[MOST];
    size_t n_sent, n_finished, n_released;
};

static void on_send(void *user, const struct piece *pieces, size_t n_pieces,
                    void (*release)(void *cookie), void *cookie) {
    struct wire *wire = user;
    assert_true(n_pieces > 0 && pieces && wire->n_sent < MOST);
    wire->release[wire->n_sent] = release;
    wire->release_users[wire->n_sent++] = cookie;
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
    struct pick_callbacks out = {.send = on_send, .finish = on_finish, .user = wire};
    *wire = (struct wire){.arena = arena_new(NULL, 0)};
    pick_send_queue_init(&wire->send_queue, wire->arena, &out);
}

static void release_sent(struct wire *wire, size_t i) {
    if (wire->release[i]) {
        wire->release[i](wire->release_users[i]);
    }
}

static void push_response(struct wire *wire) {
    struct ext_proc_response answer = {.kind = EXT_PROC_RESPONSE_BODY};
    struct error err;
    assert_int_equal(pick_send_queue_push(&wire->send_queue, &answer, NULL, &err), ST_OK);
}

static void pass(struct wire *wire, struct pick_message_ref *of) {
    struct piece piece = {"body", 4};
    struct ext_proc_response answer = {.kind = EXT_PROC_RESPONSE_BODY,
                                       .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                       .body = &piece,
                                       .n_body = 1};
    struct error err;
    assert_int_equal(pick_send_queue_push(&wire->send_queue, &answer, of, &err), ST_OK);
}

/* The first messages are in the stream's arena, without a release callback. */
static void send_queue_first_messages_use_stream_arena(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    int64_t n_arenas = metric_read(METRIC_ARENAS);
    for (int i = 0; i < 4; i++) {
        push_response(&wire);
        assert_null(wire.release[i]);
    }
    assert_int_equal(metric_read(METRIC_ARENAS), n_arenas);
    pick_send_queue_fini(&wire.send_queue);
    arena_free(wire.arena);
}

/* Only messages that are not released yet take memory, in any order of releases. */
static void send_queue_later_messages_are_freed_after_send(void **state) {
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        struct wire wire;
        open_wire(&wire);
        for (size_t i = 0; i < MOST; i++) {
            push_response(&wire);
        }
        assert_true(metric_read(METRIC_ARENAS) > 5);
        for (size_t i = 0; i < MOST; i++) {
            release_sent(&wire, backwards ? MOST - 1 - i : i);
        }
        assert_int_equal(metric_read(METRIC_ARENAS), 2); /* the stream's and the current slab's */
        pick_send_queue_fini(&wire.send_queue);
        assert_int_equal(metric_read(METRIC_ARENAS), 1);
        arena_free(wire.arena);
    }
}

/* A message is released with its last reference. */
static void message_ref_message_is_released_with_last_ref(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    struct pick_message message = {STR("body"), on_release, &wire};
    struct pick_message_ref *message_ref = pick_message_ref_new(&wire.send_queue, &message);
    pass(&wire, message_ref);
    pass(&wire, message_ref);
    pick_message_unref(message_ref); /* a reference */
    assert_int_equal(wire.n_released, 0);
    release_sent(&wire, 1);
    assert_int_equal(wire.n_released, 0);
    release_sent(&wire, 0);
    assert_int_equal(wire.n_released, 1);
    pick_send_queue_fini(&wire.send_queue);
    arena_free(wire.arena);
}

/* Sent messages outlive the session. */
static void send_queue_pending_messages_outlive_session(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    for (size_t i = 0; i < 100; i++) {
        struct pick_message message = {STR("body"), on_release, &wire};
        struct pick_message_ref *message_ref = pick_message_ref_new(&wire.send_queue, &message);
        pass(&wire, message_ref);
        pick_message_unref(message_ref);
    }
    pick_send_queue_fini(&wire.send_queue);
    assert_int_equal(wire.n_released, 0);
    for (size_t i = 0; i < 100; i++) {
        release_sent(&wire, i);
    }
    assert_int_equal(wire.n_released, 100);
    assert_int_equal(metric_read(METRIC_ARENAS), 1);
    arena_free(wire.arena);
}

static void send_queue_finish_twice_ends_stream_once(void **state) {
    struct wire wire;
    (void)state;
    open_wire(&wire);
    pick_send_queue_finish(&wire.send_queue, NULL);
    pick_send_queue_finish(&wire.send_queue, NULL);
    assert_int_equal(wire.n_finished, 1);
    pick_send_queue_fini(&wire.send_queue);
    arena_free(wire.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(send_queue_first_messages_use_stream_arena),
        cmocka_unit_test(send_queue_later_messages_are_freed_after_send),
        cmocka_unit_test(message_ref_message_is_released_with_last_ref),
        cmocka_unit_test(send_queue_pending_messages_outlive_session),
        cmocka_unit_test(send_queue_finish_twice_ends_stream_once),
    };
    return cmocka_run_group_tests_name("pick/session/send_queue", tests, NULL, NULL);
}
