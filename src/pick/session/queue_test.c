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
    struct fake_proxy *proxy;
    struct pool_pick pick;
};

static struct pool_spec *spec_of(void) {
    struct pool_spec *spec = proxy_models();
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    return spec;
}

static struct busy begin(void) {
    struct busy busy = {.proxy = proxy_open(spec_of())};
    busy.pick = fixture_pick(&busy.proxy->pool);
    return busy;
}

static void make_room(struct busy *busy) {
    pool_release_ticket(busy->proxy->pool.pool, &busy->pick.ticket);
    assert_int_equal(busy->proxy->n_notified, 1);
    proxy_resume(busy->proxy);
}

static void end(struct busy *busy) {
    struct pool_flow_stats pool_counts;
    pool_release_ticket(busy->proxy->pool.pool, &busy->pick.ticket);
    pick_session_free(busy->proxy->session); /* and it is no longer queued */
    pool_get_flow_stats(busy->proxy->pool.pool, NULL, 0, &pool_counts);
    assert_int_equal(pool_counts.n_waiting + pool_counts.n_bytes, 0);
    assert_true(pool_waited_is_empty(&busy->proxy->waited));
    assert_int_equal(metric_read(METRIC_PICK_HELD_BYTES), 0);
    busy->proxy->session = NULL;
    proxy_flush(busy->proxy);
    arena_free(busy->proxy->arena);
    for (size_t i = 0; i < busy->proxy->n_sent; i++) {
        free(busy->proxy->sent[i].bytes);
    }
    assert_int_equal(busy->proxy->n_messages, 0);
    fixture_close(&busy->proxy->pool);
    pool_wakeup_fini(&busy->proxy->wakeup);
    free(busy->proxy);
}

static void expect_waiting(const struct fake_proxy *proxy) {
    proxy_expect_no_message(proxy);
    assert_true(pick_session_deadline_ns(proxy->session) > clock_now_ns());
    assert_false(pool_waited_is_empty(&proxy->waited));
    assert_false(pick_session_is_response_pending(proxy->session));
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void queue_pick_at_headers_resumes(void **state) {
    struct busy busy = begin();
    (void)state;
    proxy_request(busy.proxy, ":method=POST|:path=/v2/models/old/infer", false,
                  PROXY_CONFIG(NONE, NONE));
    expect_waiting(busy.proxy);
    make_room(&busy);
    const struct ext_proc_client_response *reply = proxy_next(busy.proxy);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    proxy_assert_text(proxy_set(reply, ":path"), "/v2/models/new/infer");
    assert_int_equal(pick_session_deadline_ns(busy.proxy->session), 0);
    proxy_answer(busy.proxy, ":status=200", true);
    proxy_expect_continue(busy.proxy, EXT_PROC_RESPONSE_HEADERS);
    end(&busy);
}

/* Whole bodies: the answer to the body carries the pick. */
static void queue_buffered_body_resumes(void **state) {
    struct busy busy = begin();
    (void)state;
    proxy_request(busy.proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(busy.proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(busy.proxy, "{\"model\":\"old\"}", true);
    expect_waiting(busy.proxy);
    make_room(&busy);
    const struct ext_proc_client_response *reply = proxy_next(busy.proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
    proxy_pick(reply);
    proxy_assert_text(reply->body, "{\"model\":\"new\"}");
    end(&busy);
}

/* Pieces, some of which arrive while it waits, and trailers. */
static void queue_streamed_pieces_are_replayed(void **state) {
    (void)state;
    for (int at_headers = 0; at_headers < 2; at_headers++) {
        struct busy busy = begin();
        proxy_request(busy.proxy, at_headers ? ":method=POST|:path=/v2/models/m/infer" : POST,
                      false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_body(busy.proxy, "{\"model\":\"m\",", false);
        expect_waiting(busy.proxy);
        proxy_body(busy.proxy, "\"a\":", false);
        proxy_body(busy.proxy, "1}", false);
        proxy_trailers(busy.proxy, EXT_PROC_REQUEST_TRAILERS);
        expect_waiting(busy.proxy);
        assert_true(metric_read(METRIC_PICK_HELD_BYTES) > 0);
        make_room(&busy);
        proxy_pick(proxy_next(busy.proxy));
        proxy_expect_body(busy.proxy, EXT_PROC_REQUEST_BODY, STR("{\"model\":\"m\",\"a\":1}"),
                          false);
        proxy_expect_continue(busy.proxy, EXT_PROC_REQUEST_TRAILERS);
        proxy_expect_no_message(busy.proxy);
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
    proxy_request(busy.proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(busy.proxy, "{\"model\":\"m\",", false);
    proxy_part(busy.proxy, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES), false);
    proxy_body(busy.proxy, "\"a\":1}", true);
    expect_waiting(busy.proxy);
    busy.proxy->by_slice = true;
    make_room(&busy);
    proxy_pick(proxy_next(busy.proxy));
    proxy_expect_body(busy.proxy, EXT_PROC_REQUEST_BODY, STR("{\"model\":\"m\","), false);
    for (; pick_session_has_more(busy.proxy->session); n++) {
        proxy_expect_no_message(busy.proxy);
        pick_session_go_on(busy.proxy->session);
    }
    assert_int_equal(n, 7);
    memcpy(bytes + N_BYTES, "\"a\":1}", 6);
    proxy_expect_body(busy.proxy, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES + 6), true);
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
    proxy_request(busy.proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    busy.proxy->by_slice = true;
    proxy_part(busy.proxy, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES), true);
    assert_true(pick_session_has_more(busy.proxy->session));
    pick_session_on_timeout(busy.proxy->session);
    while (pick_session_has_more(busy.proxy->session)) {
        proxy_expect_no_message(busy.proxy);
        pick_session_go_on(busy.proxy->session);
    }
    expect_waiting(busy.proxy);
    make_room(&busy);
    proxy_pick(proxy_next(busy.proxy));
    proxy_expect_body(busy.proxy, EXT_PROC_REQUEST_BODY, str_make(bytes, N_BYTES), true);
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
        proxy_request(busy.proxy, ":method=POST|:path=/v2/models/m/infer", false,
                      PROXY_CONFIG(FULL_DUPLEX, NONE));
        for (int i = 0; i < PIECES; i++) {
            proxy_body(busy.proxy, "x", i == PIECES - 1);
        }
        expect_waiting(busy.proxy);
        busy.proxy->by_slice = true;
        make_room(&busy);
        for (size_t n = AT_ONCE; n < PIECES; n += AT_ONCE) {
            assert_int_equal(busy.proxy->n_sent, 1 + n);
            assert_true(pick_session_has_more(busy.proxy->session));
            if (ends) {
                pick_session_half_close(busy.proxy->session);
                break;
            }
            pick_session_go_on(busy.proxy->session);
        }
        assert_false(pick_session_has_more(busy.proxy->session));
        assert_int_equal(busy.proxy->n_sent, 1 + (ends ? AT_ONCE : PIECES));
        end(&busy);
    }
}

/* What many requests take that are resumed at the same time, with their prompts, does not hold the
 * event loop: the others follow in the next iterations, in their order. */
static void queue_resumed_requests_share_iterations(void **state) {
    enum { REQUESTS = 12 };
    static const size_t n_resumed[] = {5, 10, 12};
    struct busy busy = begin();
    struct fake_proxy *proxy = busy.proxy;
    struct pick_session *sessions[REQUESTS];
    struct arena *arenas[REQUESTS];
    (void)state;
    for (int i = 0; i < REQUESTS; i++) {
        if (i > 0) {
            proxy_stream(proxy, &proxy_limits);
        }
        proxy_request(proxy, ":method=POST|:path=/v2/models/m/infer", false,
                      PROXY_CONFIG(NONE, NONE));
        expect_waiting(proxy);
        sessions[i] = proxy->session;
        arenas[i] = proxy->arena;
    }
    clock_set_fake_ns(clock_now_ns());
    proxy->resume_ns = LOOP_MESSAGES_NS * 3 / 10;
    fixture_update(proxy->pool.pool, proxy_models()); /* without a limit */
    for (size_t k = 0; k < 3; k++) {
        struct loop_iteration iteration = {.messages = {0}};
        assert_int_equal(pick_session_resume_some(&proxy->wakeup, &iteration.messages), k < 2);
        assert_int_equal(proxy->n_sent, n_resumed[k]);
        for (size_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(pick_session_deadline_ns(sessions[i]) == 0, i < n_resumed[k]);
        }
    }
    clock_set_fake_ns(0);
    for (int i = 0; i < REQUESTS - 1; i++) {
        pick_session_free(sessions[i]);
    }
    proxy_flush(proxy);
    for (int i = 0; i < REQUESTS - 1; i++) {
        arena_free(arenas[i]);
    }
    end(&busy);
}

/* The trailers end the body, and the wait starts with them. */
static void queue_wait_at_trailers_resumes(void **state) {
    struct busy busy = begin();
    (void)state;
    proxy_request(busy.proxy, POST "|x-gateway-model-name=m", false,
                  PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_trailers(busy.proxy, EXT_PROC_REQUEST_TRAILERS);
    expect_waiting(busy.proxy);
    make_room(&busy);
    proxy_pick(proxy_next(busy.proxy));
    proxy_expect_continue(busy.proxy, EXT_PROC_REQUEST_TRAILERS);
    end(&busy);
}

/* Where the body is requested the model is matched when the body arrives. */
static void queue_overridden_mode_checks_model_later(void **state) {
    struct busy busy = begin();
    (void)state;
    proxy_request(busy.proxy, POST, false, PROXY_CONFIG(STREAMED, NONE));
    expect_waiting(busy.proxy);
    make_room(&busy);
    const struct ext_proc_client_response *reply = proxy_next(busy.proxy);
    proxy_pick(reply);
    assert_true(reply->has_mode_override);
    proxy_body(busy.proxy, "{\"model\":\"none\"}", true);
    assert_int_equal(proxy_next(busy.proxy)->http_status, 404);
    end(&busy);
}

/* ---- ends of a wait -------------------------------------------------------------------------- */

static void queue_wait_ends_on_timeout_cancel_or_local_reply(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++) {
        struct busy busy = begin();
        proxy_request(busy.proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_body(busy.proxy, "{\"model\":\"m\"", false);
        proxy_body(busy.proxy, "}", false);
        expect_waiting(busy.proxy);
        switch (how) {
        case 0:
            pick_session_on_timeout(busy.proxy->session);
            assert_int_equal(proxy_next(busy.proxy)->http_status, 429);
            break;
        case 1:
            pick_session_half_close(busy.proxy->session);
            assert_true(busy.proxy->finished);
            break;
        case 2:
            proxy_answer(busy.proxy, ":status=504", true);
            proxy_expect_continue(busy.proxy, EXT_PROC_RESPONSE_HEADERS);
            break;
        case 3:
            pick_session_cancel(busy.proxy->session, NULL);
            break;
        case 4:
            proxy_request(busy.proxy, POST, false, NULL);
            assert_int_equal(busy.proxy->why.status, ST_BAD_REQUEST);
            break;
        default: /* notified, and ended before it picks */
            pool_release_ticket(busy.proxy->pool.pool, &busy.pick.ticket);
            pick_session_cancel(busy.proxy->session, NULL);
            break;
        }
        proxy_resume(busy.proxy);
        proxy_expect_no_message(busy.proxy);
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
        proxy_request(busy.proxy, at_body ? POST : ":method=GET|:path=/v2/models/m", !at_body,
                      PROXY_CONFIG(BUFFERED, NONE));
        if (at_body) {
            proxy_expect_continue(busy.proxy, EXT_PROC_REQUEST_HEADERS);
            proxy_body(busy.proxy, "{\"model\":\"m\"}", true);
        }
        expect_waiting(busy.proxy);
        pick_session_on_message_rejected(busy.proxy->session, &why);
        assert_int_equal(proxy_next(busy.proxy)->http_status, 503);
        assert_int_equal(busy.proxy->why.status, ST_OK);
        end(&busy);
    }
}

static void queue_model_removed_while_waiting_is_404(void **state) {
    struct busy busy = begin();
    (void)state;
    proxy_request(busy.proxy, ":method=POST|:path=/v2/models/m/infer", false,
                  PROXY_CONFIG(NONE, NONE));
    expect_waiting(busy.proxy);
    struct pool_spec *spec = fixture_spec();
    spec->strict_models = true;
    fixture_update(busy.proxy->pool.pool, spec);
    proxy_resume(busy.proxy);
    assert_int_equal(proxy_next(busy.proxy)->http_status, 404);
    end(&busy);
}

/* The full endpoint is unready by then: that is not saturation. */
static void queue_timeout_without_ready_endpoint_is_503(void **state) {
    struct pool_spec *spec = spec_of();
    (void)state;
    spec->health.kind = POOL_HEALTH_TCP;
    struct busy busy = {.proxy = proxy_open(spec)};
    struct endpoint *endpoint = fixture_endpoint(&busy.proxy->pool, "10.0.0.1:8000");
    pool_set_ready(busy.proxy->pool.pool, endpoint, true);
    busy.pick = fixture_pick(&busy.proxy->pool);
    proxy_request(busy.proxy, ":method=POST|:path=/v2/models/m/infer", false,
                  PROXY_CONFIG(NONE, NONE));
    expect_waiting(busy.proxy);
    pool_set_ready(busy.proxy->pool.pool, endpoint, false);
    expect_waiting(busy.proxy);
    pick_session_on_timeout(busy.proxy->session);
    assert_int_equal(proxy_next(busy.proxy)->http_status, 503);
    end(&busy);
}

static void queue_body_over_limit_stops_reading(void **state) {
    struct busy busy = begin();
    static char piece[100000];
    (void)state;
    memset(piece, 'x', sizeof(piece) - 1);
    proxy_request(busy.proxy, ":method=POST|:path=/v2/models/m/infer", false,
                  PROXY_CONFIG(FULL_DUPLEX, NONE));
    int n = 0;
    for (; !pick_session_is_buffer_full(busy.proxy->session); n++) {
        proxy_body(busy.proxy, piece, false);
    }
    assert_int_equal(n, 11); /* of 1 MiB */
    make_room(&busy);
    proxy_pick(proxy_next(busy.proxy));
    assert_false(pick_session_is_buffer_full(busy.proxy->session));
    end(&busy);
}

/* Messages count with their overhead: a body in tiny pieces is not free. */
static void queue_tiny_messages_count_their_overhead(void **state) {
    (void)state;
    for (int by_stream = 0; by_stream < 2; by_stream++) {
        struct pool_spec *spec = spec_of();
        spec->flow_control.limits.max_bytes = by_stream ? 64 << 20 : 256 << 10;
        struct busy busy = {.proxy = proxy_open(spec)};
        busy.pick = fixture_pick(&busy.proxy->pool);
        proxy_request(busy.proxy, ":method=POST|:path=/v2/models/m/infer", false,
                      PROXY_CONFIG(FULL_DUPLEX, NONE));
        int n = 0;
        while (n < 1000 && !busy.proxy->finished &&
               !pick_session_is_buffer_full(busy.proxy->session)) {
            proxy_body(busy.proxy, "x", false);
            n++;
        }
        assert_in_range(n, 1, (by_stream ? 1 << 20 : 256 << 10) / 4096); /* each a block of its
                                                                            own */
        if (!by_stream) {
            assert_int_equal(proxy_next(busy.proxy)->http_status, 429);
        } else {
            make_room(&busy);
            proxy_pick(proxy_next(busy.proxy));
            assert_false(pick_session_is_buffer_full(busy.proxy->session));
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
