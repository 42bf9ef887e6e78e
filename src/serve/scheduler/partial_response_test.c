/* Decoupled models: responses arrive in order, the number in flight is limited, a faster backend
 * blocks until the reader catches up, and dropped responses are released. */
#include "serve/scheduler/host_callbacks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { MOST = 4 * RESPONSE_STREAM_MAX_RESPONSES, WIDE_ROWS = 65536 };

static const struct model_config decoupled = {.decoupled = true};

/* Configuration and observations of the model. */
static struct {
    int n;          /* responses before the last */
    int64_t n_rows; /* of y in each; RIG_WIDTH floats per row */
    int bad_at;     /* index of an invalid response; -1: none */
    atomic_int n_given, n_cancelled_before;
} asked;

static struct {
    struct infer_response held[MOST]; /* not yet released */
    int n, n_failed, n_released;
    int keep; /* hold so many of the first responses */
    int64_t first_rows;
    void (*then)(struct rig *rig); /* called after each; NULL: none */
} got;

static float wide[5 * WIDE_ROWS * RIG_WIDTH];

/* ---- model ----------------------------------------------------------------------------------- */

static void give(sluice_model *model, const sluice_request *request, int n, int32_t final) {
    int64_t dims[2] = {n == asked.bad_at ? -1 : asked.n_rows, RIG_WIDTH};
    sluice_output output = {.index = 0,
                            .datatype = SLUICE_FP32,
                            .dims = dims,
                            .rank = 2,
                            .data = wide,
                            .n_bytes = (size_t)asked.n_rows * RIG_WIDTH * sizeof(float)};
    sluice_response response = {.size = sizeof(response),
                                .outputs = &output,
                                .n_outputs = final ? 0 : 1,
                                .final = final,
                                .release = rig_release,
                                .cookie = model};
    backend_host()->respond(request, &response);
    atomic_fetch_add(&asked.n_given, 1);
}

static void answer_many(sluice_model *model, const sluice_request *request) {
    for (int i = 0; i < asked.n; i++) {
        if (!backend_host()->is_cancelled(request)) {
            atomic_fetch_add(&asked.n_cancelled_before, 1);
        }
        give(model, request, i, 0);
    }
    give(model, request, asked.n, 1);
}

/* ---- reader ---------------------------------------------------------------------------------- */

static void on_partial_response(struct call *call, struct infer_response *response) {
    struct rig *rig = ((struct rig_call *)(void *)call)->rig;
    got.n_failed += response->error.status != ST_OK;
    got.first_rows =
        got.n == 0 && response->n_outputs > 0 ? response->outputs[0].shape.dims[0] : got.first_rows;
    if (got.n < got.keep) {
        got.held[got.n] = *response;
    } else {
        infer_response_release(response);
        got.n_released++;
    }
    got.n++;
    if (got.then) {
        got.then(rig);
    }
}

static void release_all(void) {
    for (int i = 0; i < got.n && i < got.keep; i++) {
        if (got.held[i].release) {
            infer_response_release(&got.held[i]);
            got.n_released++;
        }
    }
}

static struct infer_requested_output only_y = {.name = STR("y")};

enum { HOST = 9 };

static void send_request_at(struct rig *rig, size_t i, bool parts) {
    struct error err;
    struct rig_call *call = rig_make_unchecked(rig, i, 1, 0);
    call->call.client.host = HOST;
    call->request.wanted = &only_y;
    call->request.n_wanted = 1;
    assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err), ST_OK);
    call->call.on_partial_response = parts ? on_partial_response : NULL;
    rig_submit(call);
}

static void send_request(struct rig *rig, bool parts) {
    send_request_at(rig, 0, parts);
}

static void send_streaming_request(struct rig *rig) {
    send_request(rig, true);
}

static void send_unary_request(struct rig *rig) {
    send_request(rig, false);
}

static void begin(struct rig *rig, int n, int64_t n_rows) {
    rig_open(rig, &decoupled, 0);
    rig->model->handle_request = answer_many;
    memset(&asked, 0, sizeof(asked));
    memset(&got, 0, sizeof(got));
    asked.n = n;
    asked.n_rows = n_rows;
    asked.bad_at = -1;
}

/* Every response was released, the final one included. */
static void end(struct rig *rig) {
    release_all();
    assert_int_equal(rig->calls[0].n_done, 1);
    assert_int_equal(atomic_load(&rig->model->n_released), asked.n + 1);
    rig_await_unused(rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    rig_close(rig);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void response_stream_all_responses_are_delivered(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 3 * RESPONSE_STREAM_MAX_RESPONSES, 2);
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(got.n, 3 * RESPONSE_STREAM_MAX_RESPONSES);
    assert_int_equal(got.n_failed, 0);
    assert_int_equal(got.first_rows, 2);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[0].n_outputs, 0);
    end(&rig);
}

static void response_stream_without_responses_completes(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 0, 1);
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(got.n, 0);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    end(&rig);
}

/* When as many are held as may be in flight, the model blocks; then they are released. */
static int most_given;

static void release_when_full(struct rig *rig) {
    int full = got.keep;
    (void)rig;
    if (got.n == full) {
        for (int i = 0; i < 50; i++) {
            rig_pause(); /* time for a wrong implementation to continue */
        }
        most_given = atomic_load(&asked.n_given);
        release_all();
    }
}

static void response_stream_max_responses_blocks_backend(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 2 * RESPONSE_STREAM_MAX_RESPONSES, 1);
    got.keep = RESPONSE_STREAM_MAX_RESPONSES;
    got.then = release_when_full;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(most_given, RESPONSE_STREAM_MAX_RESPONSES);
    assert_int_equal(got.n, 2 * RESPONSE_STREAM_MAX_RESPONSES);
    end(&rig);
}

static void response_stream_max_bytes_blocks_backend(void **state) {
    static struct rig rig;
    enum { FIT = RESPONSE_STREAM_MAX_BYTES / (WIDE_ROWS * RIG_WIDTH * sizeof(float)) };
    (void)state;
    begin(&rig, 3 * FIT, WIDE_ROWS);
    got.keep = FIT;
    got.then = release_when_full;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(most_given, FIT);
    assert_int_equal(got.n, 3 * FIT);
    end(&rig);
}

static void release_when_alone(struct rig *rig) {
    (void)rig;
    for (int i = 0; i < 20; i++) {
        rig_pause();
    }
    /* the final response may arrive */
    bool another = got.n < asked.n && atomic_load(&asked.n_given) > got.n;
    most_given = another ? -1 : most_given;
    release_all();
}

/* A response larger than the limit is sent when no other is in flight. */
static void response_stream_oversized_response_is_sent_alone(void **state) {
    static struct rig rig;
    static const int64_t rows = RESPONSE_STREAM_MAX_BYTES / (RIG_WIDTH * sizeof(float)) + 1;
    (void)state;
    begin(&rig, 4, rows);
    assert_true((size_t)rows * RIG_WIDTH * sizeof(float) <= sizeof(wide));
    got.keep = 4;
    got.then = release_when_alone;
    most_given = 0;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(most_given, 0);
    assert_int_equal(got.n, 4);
    end(&rig);
}

static void cancel_when_full(struct rig *rig) {
    if (got.n == got.keep) {
        call_cancel(&rig->calls[0].call);
    }
}

/* Cancelling wakes the blocked backend; the remaining responses are released unsent. */
static void response_stream_cancel_wakes_blocked_backend(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 3 * RESPONSE_STREAM_MAX_RESPONSES, 1);
    got.keep = RESPONSE_STREAM_MAX_RESPONSES;
    got.then = cancel_when_full;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(got.n, RESPONSE_STREAM_MAX_RESPONSES);
    /* the backend observes the cancellation */
    assert_true(atomic_load(&asked.n_cancelled_before) < 3 * RESPONSE_STREAM_MAX_RESPONSES);
    end(&rig);
}

static void response_stream_without_callback_drops_partials(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 5, 1);
    rig_run(&rig, send_unary_request, 1);
    assert_int_equal(got.n, 0);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    end(&rig);
}

static void response_stream_invalid_response_is_an_error(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 3, 1);
    asked.bad_at = 1;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(got.n, 3);
    assert_int_equal(got.n_failed, 1);
    end(&rig);
}

/* Responses outlive their call: their bytes are the model's until they are released. */
static void response_stream_held_responses_outlive_the_call(void **state) {
    static struct rig rig;
    (void)state;
    begin(&rig, 3, 1);
    got.keep = 3;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(rig.calls[0].n_done, 1);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 3);
    assert_int_equal(atomic_load(&rig.version->refs), 1 + 3);
    end(&rig);
}

/* ---- slow readers ---------------------------------------------------------------------------- */

enum { SLOW_NS = 1000000 };

static uint64_t timeout_of_host(const struct rig *rig) {
    return slow_hosts_timeout_ns(&rig->version->slow_hosts, HOST, SLOW_NS, clock_now_ns());
}

/* The first one's responses are held, those of the second are not. */
static void send_two_streaming_requests(struct rig *rig) {
    send_request_at(rig, 0, true);
    send_request_at(rig, 1, true);
}

static void response_stream_slow_reader_is_ended_for_one_that_waits(void **state) {
    static struct rig rig;
    (void)state;
    int64_t before = metric_read(METRIC_SLOW_STREAMS_ENDED_TOTAL);
    begin(&rig, RESPONSE_STREAM_MAX_RESPONSES + 1, 1);
    rig.version->slow_reader_timeout_ns = SLOW_NS;
    got.keep = RESPONSE_STREAM_MAX_RESPONSES;
    rig_run(&rig, send_two_streaming_requests, 2);
    assert_int_equal(rig.calls[0].error.status, ST_SLOW_READER);
    assert_int_equal(rig.calls[1].error.status, ST_OK);
    assert_int_equal(metric_read(METRIC_SLOW_STREAMS_ENDED_TOTAL) - before, 1);
    assert_int_equal(timeout_of_host(&rig), SLOW_NS / 2);
    release_all();
    rig_await_unused(&rig);
    rig_close(&rig);
}

/* Many times the timeout. */
static void release_after_long(struct rig *rig) {
    (void)rig;
    if (got.n == got.keep) {
        for (int i = 0; i < 200; i++) {
            rig_pause();
        }
        release_all();
    }
}

static void response_stream_slow_reader_alone_is_kept(void **state) {
    static struct rig rig;
    (void)state;
    int64_t before = metric_read(METRIC_SLOW_STREAMS_ENDED_TOTAL);
    begin(&rig, 2 * RESPONSE_STREAM_MAX_RESPONSES, 1);
    rig.version->slow_reader_timeout_ns = SLOW_NS;
    got.keep = RESPONSE_STREAM_MAX_RESPONSES;
    got.then = release_after_long;
    rig_run(&rig, send_streaming_request, 1);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(metric_read(METRIC_SLOW_STREAMS_ENDED_TOTAL), before);
    assert_int_equal(timeout_of_host(&rig), SLOW_NS);
    end(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_stream_all_responses_are_delivered),
        cmocka_unit_test(response_stream_without_responses_completes),
        cmocka_unit_test(response_stream_max_responses_blocks_backend),
        cmocka_unit_test(response_stream_max_bytes_blocks_backend),
        cmocka_unit_test(response_stream_oversized_response_is_sent_alone),
        cmocka_unit_test(response_stream_cancel_wakes_blocked_backend),
        cmocka_unit_test(response_stream_without_callback_drops_partials),
        cmocka_unit_test(response_stream_invalid_response_is_an_error),
        cmocka_unit_test(response_stream_held_responses_outlive_the_call),
        cmocka_unit_test(response_stream_slow_reader_is_ended_for_one_that_waits),
        cmocka_unit_test(response_stream_slow_reader_alone_is_kept),
    };
    return cmocka_run_group_tests_name("serve/scheduler/partial_response", tests, NULL, NULL);
}
