/* Traces of streams: how many may be open, and which traceparent goes on. */
#include "pick/stream/stream_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"

static const struct otel_sampler ALL = {.is_parent_based = true, .bound = UINT64_C(1) << 63};

static void stream_trace_over_most_open_is_dropped(void **state) {
    /* Nothing listens there: the spans go nowhere. */
    struct trace_export_options options = {.protocol = TRACE_HTTP_PROTOBUF,
                                           .url = "http://127.0.0.1:1/v1/traces",
                                           .max_queue = OTEL_MIN_BATCH,
                                           .max_batch = OTEL_MIN_BATCH,
                                           .delay_ms = 1};
    struct trace_context context = {.sampler = &ALL};
    const struct ext_proc_headers none = {.bytes = {NULL, 0}};
    const struct response_meter no_response = {.usage = NULL};
    struct stream_trace **traces = calloc(STREAM_TRACE_MOST_OPEN + 1, sizeof(*traces));
    struct arena *arena = arena_new(NULL, 0);
    struct error err;
    (void)state;
    assert_true(traces && arena);
    assert_int_equal(span_writer_new(&options, &context.writer, &err), ST_OK);
    int64_t n_dropped = metric_read(METRIC_TRACES_DROPPED);
    for (size_t i = 0; i <= STREAM_TRACE_MOST_OPEN; i++) {
        struct pick_trace_choice choice = stream_trace_begin(&context, arena, &none, &traces[i]);
        assert_int_equal(choice.traceparent.len, 55);
        assert_true(str_ends_with(choice.traceparent, STR("-01")));
        assert_true(choice.is_recorded == (i < STREAM_TRACE_MOST_OPEN));
        assert_true((traces[i] != NULL) == choice.is_recorded);
    }
    assert_int_equal(metric_read(METRIC_TRACES_DROPPED), n_dropped + 1);
    stream_trace_end(traces[0], &context, &no_response, 1);
    assert_true(stream_trace_begin(&context, arena, &none, &traces[0]).is_recorded);
    for (size_t i = 0; i < STREAM_TRACE_MOST_OPEN; i++) {
        stream_trace_end(traces[i], &context, &no_response, 1);
    }
    assert_int_equal(context.n_open, 0);
    span_writer_free(context.writer);
    arena_free(arena);
    free(traces);
}

static void stream_trace_without_writer_passes_context_on(void **state) {
    struct trace_context context = {.sampler = &ALL};
    const struct ext_proc_headers none = {.bytes = {NULL, 0}};
    struct arena *arena = arena_new(NULL, 0);
    struct stream_trace *trace;
    (void)state;
    struct pick_trace_choice choice = stream_trace_begin(&context, arena, &none, &trace);
    assert_true(!choice.is_recorded && !trace && choice.traceparent.len == 55);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_trace_over_most_open_is_dropped),
        cmocka_unit_test(stream_trace_without_writer_passes_context_on),
    };
    return cmocka_run_group_tests_name("pick/stream/stream_trace", tests, NULL, NULL);
}
