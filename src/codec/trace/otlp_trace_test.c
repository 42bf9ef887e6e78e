/* Traces as OTLP's JSON: every member of a span, and which spans a trace has. */
#include "codec/trace/otlp_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct otlp_ids IDS = {
    .trace = {0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80,
              0x31, 0x9c},
    .spans = {{1, 2, 3, 4, 5, 6, 7, 8}, {0x11}, {0x22}},
};
#define TRACE_TEXT "0af7651916cd43dd8448eb211c80319c"

static void expect(const struct buf *out, const char *text) {
    if (out->failed || !str_is(buf_str(out), text)) {
        fail_msg("%.*s", STR_ARG(buf_str(out)));
    }
}

/* Returns: the number of spans. */
static size_t add_trace(struct buf *out, const struct trace_record *record,
                        const struct otlp_ids *ids, uint64_t unix_ns, bool first) {
    struct otlp_request request = {.out = out, .n_spans = first ? 0 : 1};
    struct otlp_trace trace;
    otlp_trace_fill(record, ids, &trace);
    for (size_t i = 0; i < trace.n_spans; i++) {
        otlp_request_add(&request, &trace.spans[i], unix_ns);
    }
    return trace.n_spans;
}

/* A request that was rejected: one span, with the error status. */
static void otlp_trace_failed_request_has_one_span(void **state) {
    struct otlp_ids ids = IDS;
    struct trace_record record = {.id = 7, .model = STR("m"), .version = 3, .failure = STR("no")};
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    (void)state;
    ids.has_parent = true;
    ids.parent[0] = 0xab;
    ids.state = STR("x=y");
    record.ns[TRACE_HTTP_RECV_START] = 5;
    record.ns[TRACE_HTTP_RECV_END] = 9;
    buf_init(&out, arena, 0);
    assert_int_equal(add_trace(&out, &record, &ids, 1000, true), 1);
    expect(&out,
           "{\"traceId\":\"" TRACE_TEXT "\",\"spanId\":\"0102030405060708\",\"traceState\":\"x=y\","
           "\"parentSpanId\":\"ab00000000000000\",\"name\":\"InferRequest\",\"kind\":2,"
           "\"startTimeUnixNano\":\"1005\",\"endTimeUnixNano\":\"1009\",\"attributes\":["
           "{\"key\":\"triton.model_name\",\"value\":{\"stringValue\":\"m\"}},"
           "{\"key\":\"triton.model_version\",\"value\":{\"intValue\":\"3\"}},"
           "{\"key\":\"triton.trace_id\",\"value\":{\"intValue\":\"7\"}},"
           "{\"key\":\"triton.trace_parent_id\",\"value\":{\"intValue\":\"0\"}}],\"events\":["
           "{\"timeUnixNano\":\"1005\",\"name\":\"HTTP_RECV_START\"},"
           "{\"timeUnixNano\":\"1009\",\"name\":\"HTTP_RECV_END\"}],"
           "\"status\":{\"message\":\"no\",\"code\":2}}");
    arena_free(arena);
}

/* The number of spans of a trace, by its timestamps. */
static void otlp_trace_span_count_follows_timestamps(void **state) {
    struct trace_record record = {.model = STR("m")};
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    (void)state;
    buf_init(&out, arena, 0);
    assert_int_equal(add_trace(&out, &record, &IDS, 0, true), 0);
    record.ns[TRACE_REQUEST_START] = 1;
    assert_int_equal(add_trace(&out, &record, &IDS, 0, true), 1);
    record.ns[TRACE_REQUEST_END] = 8;
    record.ns[TRACE_INFER_RESPONSE_COMPLETE] = 7;
    assert_int_equal(add_trace(&out, &record, &IDS, 0, true), 2);
    record.ns[TRACE_COMPUTE_START] = 2;
    record.ns[TRACE_COMPUTE_END] = 3;
    buf_init(&out, arena, 0);
    assert_int_equal(add_trace(&out, &record, &IDS, 0, false), 3);
    assert_int_equal(out.data[0], ',');
    buf_add_char(&out, '\0');
    assert_null(strstr(out.data, "status"));
    assert_non_null(strstr(out.data, "\"spanId\":\"2200000000000000\",\"parentSpanId\":"
                                     "\"1100000000000000\",\"name\":\"compute\""));
    arena_free(arena);
}

/* A step of an ensemble: a span of its model, within that of the ensemble. */
static void otlp_trace_inside_of_another_has_no_request_span(void **state) {
    struct otlp_ids ids = IDS;
    struct trace_record record = {.id = 7, .parent_id = 6, .model = STR("m")};
    struct otlp_trace trace;
    (void)state;
    ids.has_parent = true;
    ids.parent[0] = 0xab;
    record.ns[TRACE_REQUEST_START] = 1;
    record.ns[TRACE_COMPUTE_START] = 2;
    record.ns[TRACE_COMPUTE_END] = 3;
    record.ns[TRACE_INFER_RESPONSE_COMPLETE] = 4;
    record.ns[TRACE_REQUEST_END] = 8;
    otlp_trace_fill(&record, &ids, &trace);
    assert_int_equal(trace.n_spans, 2);
    const struct otlp_span *span = &trace.spans[0];
    assert_true(str_is(span->name, "m") && span->has_parent && !span->failed);
    assert_memory_equal(span->parent, ids.parent, SPAN_ID_BYTES);
    assert_memory_equal(span->id, ids.spans[OTLP_MODEL_SPAN], SPAN_ID_BYTES);
    assert_int_equal(span->start_ns, 1);
    assert_int_equal(span->end_ns, 8);
    assert_int_equal(span->n_events, 2);
    assert_int_equal(span->n_attributes, 4);
    assert_memory_equal(trace.spans[1].parent, span->id, SPAN_ID_BYTES);
    memset(record.ns, 0, sizeof(record.ns));
    record.ns[TRACE_REQUEST_START] = 1;
    otlp_trace_fill(&record, &ids, &trace); /* refused */
    assert_int_equal(trace.n_spans, 1);
    assert_true(trace.spans[0].failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(otlp_trace_failed_request_has_one_span),
        cmocka_unit_test(otlp_trace_span_count_follows_timestamps),
        cmocka_unit_test(otlp_trace_inside_of_another_has_no_request_span),
    };
    return cmocka_run_group_tests_name("codec/trace/otlp_trace", tests, NULL, NULL);
}
