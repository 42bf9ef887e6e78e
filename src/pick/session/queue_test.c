/* A session in the queue: its answers and their order in each mode, the ends of a wait, and that
 * nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions"

/* One endpoint with capacity for one request, which the test holds. */
struct busy {
    struct stage *stage;
    struct pool_pick pick;
};

static struct pool_spec *spec_of(void) {
    struct pool_spec *spec = stage_models();
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    return spec;
}

static struct busy begin(void) {
    struct busy busy = {.stage = stage_open(spec_of())};
    busy.pick = fixture_pick(&busy.stage->pool);
    return busy;
}

static void make_room(struct busy *busy) {
    pool_release_ticket(busy->stage->pool.pool, &busy->pick.ticket);
    assert_int_equal(busy->stage->n_notified, 1);
    stage_resume(busy->stage);
}

static void end(struct busy *busy) {
    struct pool_flow_stats pool_counts;
    pool_release_ticket(busy->stage->pool.pool, &busy->pick.ticket);
    pick_session_free(busy->stage->session); /* and it is no longer queued */
    pool_get_flow_stats(busy->stage->pool.pool, NULL, 0, &pool_counts);
    assert_int_equal(pool_counts.n_waiting + pool_counts.n_bytes, 0);
    assert_true(pool_waited_is_empty(&busy->stage->waited));
    assert_int_equal(metric_read(METRIC_PICK_HELD_BYTES), 0);
    busy->stage->session = NULL;
    stage_flush(busy->stage);
    arena_free(busy->stage->arena);
    for (size_t i = 0; i < busy->stage->n_sent; i++) {
        free(busy->stage->sent[i].bytes);
    }
    assert_int_equal(busy->stage->n_messages, 0);
    fixture_close(&busy->stage->pool);
    pool_wakeup_fini(&busy->stage->wakeup);
    free(busy->stage);
}

static void expect_waiting(const struct stage *stage) {
    stage_expect_no_message(stage);
    assert_true(pick_session_deadline_ns(stage->session) > clock_now_ns());
    assert_false(pool_waited_is_empty(&stage->waited));
    assert_false(pick_session_is_response_pending(stage->session));
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void queue_pick_at_headers_resumes(void **state) {
    struct busy busy = begin();
    (void)state;
    stage_request(busy.stage, ":method=POST|:path=/v2/models/old/infer", false,
                  STAGE_CONFIG(NONE, NONE));
    expect_waiting(busy.stage);
    make_room(&busy);
    const struct ext_proc_client_response *reply = stage_next(busy.stage);
    stage_assert_text(stage_pick(reply), "10.0.0.1:8000");
    stage_assert_text(stage_set(reply, ":path"), "/v2/models/new/infer");
    assert_int_equal(pick_session_deadline_ns(busy.stage->session), 0);
    stage_answer(busy.stage, ":status=200", true);
    stage_expect_continue(busy.stage, EXT_PROC_RESPONSE_HEADERS);
    end(&busy);
}

/* Whole bodies: the answer to the body carries the pick. */
static void queue_buffered_body_resumes(void **state) {
    struct busy busy = begin();
    (void)state;
    stage_request(busy.stage, POST, false, STAGE_CONFIG(BUFFERED, NONE));
    stage_expect_continue(busy.stage, EXT_PROC_REQUEST_HEADERS);
    stage_body(busy.stage, "{\"model\":\"old\"}", true);
    expect_waiting(busy.stage);
    make_room(&busy);
    const struct ext_proc_client_response *reply = stage_next(busy.stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
    stage_pick(reply);
    stage_assert_text(reply->body, "{\"model\":\"new\"}");
    end(&busy);
}

/* Pieces, some of which arrive while it waits, and trailers. */
static void queue_streamed_pieces_are_replayed(void **state) {
    (void)state;
    for (int at_headers = 0; at_headers < 2; at_headers++) {
        struct busy busy = begin();
        stage_request(busy.stage, at_headers ? ":method=POST|:path=/v2/models/m/infer" : POST,
                      false, STAGE_CONFIG(FULL_DUPLEX, NONE));
        stage_body(busy.stage, "{\"model\":\"m\",", false);
        expect_waiting(busy.stage);
        stage_body(busy.stage, "\"a\":", false);
        stage_body(busy.stage, "1}", false);
        stage_trailers(busy.stage, EXT_PROC_REQUEST_TRAILERS);
        expect_waiting(busy.stage);
        assert_true(metric_read(METRIC_PICK_HELD_BYTES) > 0);
        make_room(&busy);
        stage_pick(stage_next(busy.stage));
        stage_expect_body(busy.stage, EXT_PROC_REQUEST_BODY, STR("{\"model\":\"m\",\"a\":1}"),
                          false);
        stage_expect_continue(busy.stage, EXT_PROC_REQUEST_TRAILERS);
        stage_expect_no_message(busy.stage);
        end(&busy);
    }
}

/* bug-N12: a large piece that arrived while it waited is scanned in slices, before what is after
 * it. */
static void queue_large_piece_is_replayed_in_slices(void **state) {
    enum { N_BYTES = 64 << 10 };
    struct busy busy = begin();
    char *bytes = malloc(N_BYTES + 6);
    int n = 0;
    (void)state;
    assert_non_null(bytes);
    memset(bytes, ' ', N_BYTES);
    stage_request(busy.stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(busy.stage, "{\"model\":\"m\",", false);
    stage_part(busy.stage, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES), false);
    stage_body(busy.stage, "\"a\":1}", true);
    expect_waiting(busy.stage);
    busy.stage->by_slice = true;
    make_room(&busy);
    stage_pick(stage_next(busy.stage));
    stage_expect_body(busy.stage, EXT_PROC_REQUEST_BODY, STR("{\"model\":\"m\","), false);
    for (; pick_session_has_more(busy.stage->session); n++) {
        stage_expect_no_message(busy.stage);
        pick_session_go_on(busy.stage->session);
    }
    assert_int_equal(n, 7);
    memcpy(bytes + N_BYTES, "\"a\":1}", 6);
    stage_expect_body(busy.stage, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES + 6), true);
    end(&busy);
    free(bytes);
}

/* The time for a response ends while a large body is scanned; the wait has a time of its own. */
static void queue_wait_after_timeout_in_scan_has_its_own_time(void **state) {
    enum { N_BYTES = 64 << 10 };
    static const char end_of_body[] = "\"model\":\"m\"}";
    struct busy busy = begin();
    char *bytes = malloc(N_BYTES);
    (void)state;
    assert_non_null(bytes);
    memset(bytes, ' ', N_BYTES);
    bytes[0] = '{';
    memcpy(bytes + N_BYTES - strlen(end_of_body), end_of_body, strlen(end_of_body));
    stage_request(busy.stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    busy.stage->by_slice = true;
    stage_part(busy.stage, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES), true);
    assert_true(pick_session_has_more(busy.stage->session));
    pick_session_on_timeout(busy.stage->session);
    while (pick_session_has_more(busy.stage->session)) {
        stage_expect_no_message(busy.stage);
        pick_session_go_on(busy.stage->session);
    }
    expect_waiting(busy.stage);
    make_room(&busy);
    stage_pick(stage_next(busy.stage));
    stage_expect_body(busy.stage, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES), true);
    end(&busy);
    free(bytes);
}

/* A body that came in many pieces while it waited is passed on in parts, between which other
 * requests have their turn. It may end in between. */
static void queue_many_pieces_are_replayed_in_parts(void **state) {
    enum { PIECES = 100, AT_ONCE = 32 };
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        struct busy busy = begin();
        stage_request(busy.stage, ":method=POST|:path=/v2/models/m/infer", false,
                      STAGE_CONFIG(FULL_DUPLEX, NONE));
        for (int i = 0; i < PIECES; i++) {
            stage_body(busy.stage, "x", i == PIECES - 1);
        }
        expect_waiting(busy.stage);
        busy.stage->by_slice = true;
        make_room(&busy);
        for (size_t n = AT_ONCE; n < PIECES; n += AT_ONCE) {
            assert_int_equal(busy.stage->n_sent, 1 + n);
            assert_true(pick_session_has_more(busy.stage->session));
            if (ends) {
                pick_session_half_close(busy.stage->session);
                break;
            }
            pick_session_go_on(busy.stage->session);
        }
        assert_false(pick_session_has_more(busy.stage->session));
        assert_int_equal(busy.stage->n_sent, 1 + (ends ? AT_ONCE : PIECES));
        end(&busy);
    }
}

/* What many requests take that are resumed at the same time, with their prompts, does not hold the
 * event loop: the others follow in the next iterations, in their order. */
static void queue_resumed_requests_share_iterations(void **state) {
    enum { REQUESTS = 12 };
    static const size_t n_resumed[] = {5, 10, 12};
    struct busy busy = begin();
    struct stage *stage = busy.stage;
    struct pick_session *sessions[REQUESTS];
    struct arena *arenas[REQUESTS];
    (void)state;
    for (int i = 0; i < REQUESTS; i++) {
        if (i > 0) {
            stage_stream(stage, &stage_limits);
        }
        stage_request(stage, ":method=POST|:path=/v2/models/m/infer", false,
                      STAGE_CONFIG(NONE, NONE));
        expect_waiting(stage);
        sessions[i] = stage->session;
        arenas[i] = stage->arena;
    }
    clock_set_fake_ns(clock_now_ns());
    stage->resume_ns = LOOP_MESSAGES_NS * 3 / 10;
    fixture_update(stage->pool.pool, stage_models()); /* without a limit */
    for (size_t k = 0; k < 3; k++) {
        struct loop_iteration iteration = {.messages = {0}};
        assert_int_equal(pick_session_resume_some(&stage->wakeup, &iteration), k < 2);
        assert_int_equal(stage->n_sent, n_resumed[k]);
        for (size_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(pick_session_deadline_ns(sessions[i]) == 0, i < n_resumed[k]);
        }
    }
    clock_set_fake_ns(0);
    for (int i = 0; i < REQUESTS - 1; i++) {
        pick_session_free(sessions[i]);
    }
    stage_flush(stage);
    for (int i = 0; i < REQUESTS - 1; i++) {
        arena_free(arenas[i]);
    }
    end(&busy);
}

/* The trailers end the body, and the wait starts with them. */
static void queue_wait_at_trailers_resumes(void **state) {
    struct busy busy = begin();
    (void)state;
    stage_request(busy.stage, POST "|x-gateway-model-name=m", false,
                  STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_trailers(busy.stage, EXT_PROC_REQUEST_TRAILERS);
    expect_waiting(busy.stage);
    make_room(&busy);
    stage_pick(stage_next(busy.stage));
    stage_expect_continue(busy.stage, EXT_PROC_REQUEST_TRAILERS);
    end(&busy);
}

/* Where the body is requested the model is matched when the body arrives. */
static void queue_overridden_mode_checks_model_later(void **state) {
    struct busy busy = begin();
    (void)state;
    stage_request(busy.stage, POST, false, STAGE_CONFIG(STREAMED, NONE));
    expect_waiting(busy.stage);
    make_room(&busy);
    const struct ext_proc_client_response *reply = stage_next(busy.stage);
    stage_pick(reply);
    assert_true(reply->has_mode_override);
    stage_body(busy.stage, "{\"model\":\"none\"}", true);
    assert_int_equal(stage_next(busy.stage)->http_status, 404);
    end(&busy);
}

/* ---- ends of a wait -------------------------------------------------------------------------- */

static void queue_wait_ends_on_timeout_cancel_or_local_reply(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++) {
        struct busy busy = begin();
        stage_request(busy.stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
        stage_body(busy.stage, "{\"model\":\"m\"", false);
        stage_body(busy.stage, "}", false);
        expect_waiting(busy.stage);
        switch (how) {
        case 0:
            pick_session_on_timeout(busy.stage->session);
            assert_int_equal(stage_next(busy.stage)->http_status, 429);
            break;
        case 1:
            pick_session_half_close(busy.stage->session);
            assert_true(busy.stage->finished);
            break;
        case 2:
            stage_answer(busy.stage, ":status=504", true);
            stage_expect_continue(busy.stage, EXT_PROC_RESPONSE_HEADERS);
            break;
        case 3:
            pick_session_cancel(busy.stage->session, NULL);
            break;
        case 4:
            stage_request(busy.stage, POST, false, NULL);
            assert_int_equal(busy.stage->why.status, ST_BAD_REQUEST);
            break;
        default: /* notified, and ended before it picks */
            pool_release_ticket(busy.stage->pool.pool, &busy.pick.ticket);
            pick_session_cancel(busy.stage->session, NULL);
            break;
        }
        stage_resume(busy.stage);
        stage_expect_no_message(busy.stage);
        end(&busy);
    }
}

/* No memory for the stream is noticed after its last message was queued: nothing has been sent to
 * an endpoint, so the client still gets an answer. */
static void queue_rejected_whole_request_is_answered(void **state) {
    struct error why;
    (void)state;
    error_set(&why, ST_OVERLOADED, "no memory");
    for (int at_body = 0; at_body < 2; at_body++) {
        struct busy busy = begin();
        stage_request(busy.stage, at_body ? POST : ":method=GET|:path=/v2/models/m", !at_body,
                      STAGE_CONFIG(BUFFERED, NONE));
        if (at_body) {
            stage_expect_continue(busy.stage, EXT_PROC_REQUEST_HEADERS);
            stage_body(busy.stage, "{\"model\":\"m\"}", true);
        }
        expect_waiting(busy.stage);
        pick_session_on_message_rejected(busy.stage->session, &why);
        assert_int_equal(stage_next(busy.stage)->http_status, 503);
        assert_int_equal(busy.stage->why.status, ST_OK);
        end(&busy);
    }
}

static void queue_model_removed_while_waiting_is_404(void **state) {
    struct busy busy = begin();
    (void)state;
    stage_request(busy.stage, ":method=POST|:path=/v2/models/m/infer", false,
                  STAGE_CONFIG(NONE, NONE));
    expect_waiting(busy.stage);
    struct pool_spec *spec = fixture_spec();
    spec->strict_models = true;
    fixture_update(busy.stage->pool.pool, spec);
    stage_resume(busy.stage);
    assert_int_equal(stage_next(busy.stage)->http_status, 404);
    end(&busy);
}

/* The full endpoint is unready by then: that is not saturation. */
static void queue_timeout_without_ready_endpoint_is_503(void **state) {
    struct pool_spec *spec = spec_of();
    (void)state;
    spec->health.kind = POOL_HEALTH_TCP;
    struct busy busy = {.stage = stage_open(spec)};
    struct endpoint *endpoint = fixture_endpoint(&busy.stage->pool, "10.0.0.1:8000");
    pool_set_ready(busy.stage->pool.pool, endpoint, true);
    busy.pick = fixture_pick(&busy.stage->pool);
    stage_request(busy.stage, ":method=POST|:path=/v2/models/m/infer", false,
                  STAGE_CONFIG(NONE, NONE));
    expect_waiting(busy.stage);
    pool_set_ready(busy.stage->pool.pool, endpoint, false);
    expect_waiting(busy.stage);
    pick_session_on_timeout(busy.stage->session);
    assert_int_equal(stage_next(busy.stage)->http_status, 503);
    end(&busy);
}

static void queue_body_over_limit_stops_reading(void **state) {
    struct busy busy = begin();
    static char piece[100000];
    (void)state;
    memset(piece, 'x', sizeof(piece) - 1);
    stage_request(busy.stage, ":method=POST|:path=/v2/models/m/infer", false,
                  STAGE_CONFIG(FULL_DUPLEX, NONE));
    int n = 0;
    for (; !pick_session_is_buffer_full(busy.stage->session); n++) {
        stage_body(busy.stage, piece, false);
    }
    assert_int_equal(n, 11); /* of 1 MiB */
    make_room(&busy);
    stage_pick(stage_next(busy.stage));
    assert_false(pick_session_is_buffer_full(busy.stage->session));
    end(&busy);
}

/* Messages count with their overhead: a body in tiny pieces is not free. */
static void queue_tiny_messages_count_their_overhead(void **state) {
    (void)state;
    for (int by_stream = 0; by_stream < 2; by_stream++) {
        struct pool_spec *spec = spec_of();
        spec->flow_control.limits.max_bytes = by_stream ? 64 << 20 : 256 << 10;
        struct busy busy = {.stage = stage_open(spec)};
        busy.pick = fixture_pick(&busy.stage->pool);
        stage_request(busy.stage, ":method=POST|:path=/v2/models/m/infer", false,
                      STAGE_CONFIG(FULL_DUPLEX, NONE));
        int n = 0;
        while (n < 1000 && !busy.stage->finished &&
               !pick_session_is_buffer_full(busy.stage->session)) {
            stage_body(busy.stage, "x", false);
            n++;
        }
        assert_in_range(n, 1, (by_stream ? 1 << 20 : 256 << 10) / 4096); /* each a block of its
                                                                            own */
        if (!by_stream) {
            assert_int_equal(stage_next(busy.stage)->http_status, 429);
        } else {
            make_room(&busy);
            stage_pick(stage_next(busy.stage));
            assert_false(pick_session_is_buffer_full(busy.stage->session));
        }
        end(&busy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_pick_at_headers_resumes),
        cmocka_unit_test(queue_buffered_body_resumes),
        cmocka_unit_test(queue_streamed_pieces_are_replayed),
        cmocka_unit_test(queue_large_piece_is_replayed_in_slices),
        cmocka_unit_test(queue_wait_after_timeout_in_scan_has_its_own_time),
        cmocka_unit_test(queue_many_pieces_are_replayed_in_parts),
        cmocka_unit_test(queue_resumed_requests_share_iterations),
        cmocka_unit_test(queue_wait_at_trailers_resumes),
        cmocka_unit_test(queue_overridden_mode_checks_model_later),
        cmocka_unit_test(queue_wait_ends_on_timeout_cancel_or_local_reply),
        cmocka_unit_test(queue_rejected_whole_request_is_answered),
        cmocka_unit_test(queue_model_removed_while_waiting_is_404),
        cmocka_unit_test(queue_timeout_without_ready_endpoint_is_503),
        cmocka_unit_test(queue_body_over_limit_stops_reading),
        cmocka_unit_test(queue_tiny_messages_count_their_overhead),
    };
    return cmocka_run_group_tests_name("pick/session/queue", tests, NULL, NULL);
}
