/* Requests to collectors: every kind of attribute in both forms, and responses. */
#include "codec/trace/otlp_span.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct buf *out, const char *text) {
    if (out->failed || !str_is(buf_str(out), text)) {
        fail_msg("%.*s", STR_ARG(buf_str(out)));
    }
}

static void otlp_request_empty_is_printed(void **state) {
    const struct otlp_attribute resource[] = {
        {.key = STR("a"), .text = STR("b")},
        {.key = STR("c\""), .text = {"\xff", 1}}}; /* invalid UTF-8:
                                                                             written as "" */
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct otlp_request request;
    (void)state;
    buf_init(&out, arena, 0);
    otlp_request_begin(&request, &out, OTLP_JSON, resource, 2, STR("9"));
    otlp_request_end(&request);
    expect(&out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
                 "{\"key\":\"a\",\"value\":{\"stringValue\":\"b\"}},"
                 "{\"key\":\"c\\\"\",\"value\":{\"stringValue\":\"\"}}]},"
                 "\"scopeSpans\":[{\"scope\":{\"name\":\"sluice\",\"version\":\"9\"},"
                 "\"spans\":[]}]}]}");
    arena_free(arena);
}

static const struct str TEXTS[] = {STR("x"), STR("\xff")};
static const double NUMBERS[] = {0.5, 0};
static const struct otlp_attribute ATTRIBUTES[] = {
    {.key = STR("t"), .text = STR("v")},
    {.key = STR("i"), .kind = OTLP_INTEGER, .integer = -1},
    {.key = STR("n"), .kind = OTLP_NUMBER, .number = 1.5},
    {.key = STR("ts"), .kind = OTLP_TEXTS, .texts = TEXTS, .n = 2},
    {.key = STR("ns"), .kind = OTLP_NUMBERS, .numbers = NUMBERS, .n = 2}};
static const struct otlp_event EVENTS[] = {{7, STR("e")}};
static const struct otlp_span SPAN = {.trace = {1, [15] = 2},
                                      .id = {3, [7] = 4},
                                      .parent = {5, [7] = 6},
                                      .has_parent = true,
                                      .failed = true,
                                      .failure = STR("no"),
                                      .kind = OTLP_SPAN_CLIENT,
                                      .state = STR("a=b"),
                                      .name = STR("s"),
                                      .start_ns = 5,
                                      .end_ns = 9,
                                      .attributes = ATTRIBUTES,
                                      .n_attributes = 5,
                                      .events = EVENTS,
                                      .n_events = 1};

static void otlp_span_in_json_has_all_members(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    (void)state;
    buf_init(&out, arena, 0);
    struct otlp_request request = {.out = &out, .format = OTLP_JSON};
    otlp_request_add(&request, &SPAN, 1000);
    expect(&out,
           "{\"traceId\":\"01000000000000000000000000000002\",\"spanId\":\"0300000000000004\","
           "\"traceState\":\"a=b\",\"parentSpanId\":\"0500000000000006\",\"name\":\"s\","
           "\"kind\":3,\"startTimeUnixNano\":\"1005\",\"endTimeUnixNano\":\"1009\","
           "\"attributes\":[{\"key\":\"t\",\"value\":{\"stringValue\":\"v\"}},"
           "{\"key\":\"i\",\"value\":{\"intValue\":\"-1\"}},"
           "{\"key\":\"n\",\"value\":{\"doubleValue\":1.5}},"
           "{\"key\":\"ts\",\"value\":{\"arrayValue\":{\"values\":[{\"stringValue\":\"x\"},"
           "{\"stringValue\":\"\"}]}}},"
           "{\"key\":\"ns\",\"value\":{\"arrayValue\":{\"values\":[{\"doubleValue\":0.5},"
           "{\"doubleValue\":0}]}}}],"
           "\"events\":[{\"timeUnixNano\":\"1007\",\"name\":\"e\"}],"
           "\"status\":{\"message\":\"no\",\"code\":2}}");
    arena_free(arena);
}

/* The same message as protoc's Python encodes it. */
static void otlp_span_in_protobuf_has_all_fields(void **state) {
    static const char expected[] =
        "\x0a\xd6\x01\x0a\x0a\x0a\x08\x0a\x01\x72\x12\x03\x0a\x01\x76\x12\xc7\x01\x0a\x0b"
        "\x0a\x06\x73\x6c\x75\x69\x63\x65\x12\x01\x39\x12\xb7\x01\x0a\x10\x01\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x12\x08\x03\x00\x00\x00\x00\x00"
        "\x00\x04\x1a\x03\x61\x3d\x62\x22\x08\x05\x00\x00\x00\x00\x00\x00\x06\x2a\x01\x73"
        "\x30\x03\x39\xed\x03\x00\x00\x00\x00\x00\x00\x41\xf1\x03\x00\x00\x00\x00\x00\x00"
        "\x4a\x08\x0a\x01\x74\x12\x03\x0a\x01\x76\x4a\x10\x0a\x01\x69\x12\x0b\x18\xff\xff"
        "\xff\xff\xff\xff\xff\xff\xff\x01\x4a\x0e\x0a\x01\x6e\x12\x09\x21\x00\x00\x00\x00"
        "\x00\x00\xf8\x3f\x4a\x11\x0a\x02\x74\x73\x12\x0b\x2a\x09\x0a\x03\x0a\x01\x78\x0a"
        "\x02\x0a\x00\x4a\x1e\x0a\x02\x6e\x73\x12\x18\x2a\x16\x0a\x09\x21\x00\x00\x00\x00"
        "\x00\x00\xe0\x3f\x0a\x09\x21\x00\x00\x00\x00\x00\x00\x00\x00\x5a\x0c\x09\xef\x03"
        "\x00\x00\x00\x00\x00\x00\x12\x01\x65\x7a\x06\x12\x02\x6e\x6f\x18\x02";
    const struct otlp_attribute resource = {.key = STR("r"), .text = STR("v")};
    struct arena *arena = arena_new(NULL, 0);
    struct otlp_request request;
    struct buf out;
    (void)state;
    buf_init(&out, arena, 0);
    otlp_request_begin(&request, &out, OTLP_PROTOBUF, &resource, 1, STR("9"));
    otlp_request_add(&request, &SPAN, 1000);
    otlp_request_end(&request);
    assert_false(out.failed);
    assert_int_equal(out.len, sizeof expected - 1);
    assert_memory_equal(out.data, expected, out.len);
    arena_free(arena);
}

static void otlp_rejected_spans_of_json_are_read(void **state) {
    static const struct {
        const char *answer;
        uint64_t n;
        const char *why;
    } rows[] = {
        {"", 0, ""},
        {"{}", 0, ""},
        {"[1]", 0, ""},
        {"<html>", 0, ""},
        {"{\"partialSuccess\":{}}", 0, ""},
        {"{\"partialSuccess\":null}", 0, ""},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"too old\"}}", 3,
         "too old"},
        {"{\"partialSuccess\":{\"rejectedSpans\":2}}", 2, ""},
        {"{\"partialSuccess\":{\"rejectedSpans\":-2}}", 0, ""},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"many\",\"errorMessage\":7}}", 0, ""},
        {"{\"partialSuccess\":{\"errorMessage\":\"only said\"}}", 0, "only said"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str why;
        assert_int_equal(otlp_rejected_spans(arena, OTLP_JSON, str_of(rows[i].answer), &why),
                         rows[i].n);
        assert_true(str_is(why, rows[i].why));
        arena_free(arena);
    }
}

static void otlp_rejected_spans_of_protobuf_are_read(void **state) {
    static const struct {
        struct str answer;
        uint64_t n;
        const char *why;
    } rows[] = {
        {STR(""), 0, ""},
        {STR("\x0a\0"), 0, ""},
        {STR("\x0a\x07\x08\x03\x12\x03"
             "old"),
         3, "old"},
        {STR("\x0a\x02\x08\x02"), 2, ""},
        {STR("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0, ""}, /* -1 */
        {STR("\x0a\x07\x08"), 0, ""},
        {STR("\x0a\x05\x12\x03\xff\xff\xff"), 0, ""},
        {STR("<html>"), 0, ""},
    };
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str why;
        assert_int_equal(otlp_rejected_spans(arena, OTLP_PROTOBUF, rows[i].answer, &why),
                         rows[i].n);
        assert_true(str_is(why, rows[i].why));
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(otlp_request_empty_is_printed),
        cmocka_unit_test(otlp_span_in_json_has_all_members),
        cmocka_unit_test(otlp_span_in_protobuf_has_all_fields),
        cmocka_unit_test(otlp_rejected_spans_of_json_are_read),
        cmocka_unit_test(otlp_rejected_spans_of_protobuf_are_read),
    };
    return cmocka_run_group_tests_name("codec/trace/otlp_span", tests, NULL, NULL);
}
