/* The events of a watch, with its bytes cut anywhere, and malformed streams. */
#include "codec/kube/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"
#include "core/base/buf.h"

static const char *const NAMES[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"};

static void say(struct buf *out, const struct kube_stream_event *event) {
    buf_printf(out, "%s %.*s@%.*s;", NAMES[event->type],
               STR_ARG(kube_metadata_text(&event->object, "name")), STR_ARG(event->version));
}

/* Returns the events of `text` in words, fed in pieces of `step` bytes, each in memory of its
 * own. */
static enum status read_text(struct str text, size_t step, size_t most_bytes, struct buf *out,
                             struct error *err) {
    struct kube_stream stream = {.max_event_bytes = most_bytes};
    struct kube_stream_event event;
    enum status status = ST_OK;
    buf_init(out, arena, 256);
    for (size_t at = 0; status == ST_OK && at < text.len; at += step) {
        size_t n = text.len - at < step ? text.len - at : step;
        char *copy = malloc(n);
        memcpy(copy, text.ptr + at, n);
        struct str piece = str_make(copy, n);
        while (status == ST_OK && piece.len > 0) {
            status = kube_stream_step(&stream, &piece, &event, err);
            if (status == ST_OK && event.complete) {
                say(out, &event);
            }
        }
        free(copy);
    }
    kube_stream_fini(&stream);
    return status;
}

static const char EVENTS[] =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"10\","
    "\"annotations\":{\"x\":\"}{ \\\" [\\\\\"}}}}\n"
    "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"resourceVersion\":\"11\",\"name\":\"\\u00e9"
    "\"}}}\n\r\n  "
    "{\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"12\"}},\"type\":\"DELETED\"}"
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"20\"}}}\n"
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n";
static const char TOLD[] = "ADDED a@10;MODIFIED \u00e9@11;DELETED a@12;BOOKMARK @20;ERROR @;";

static void kube_stream_events_at_each_split_are_decoded(void **state) {
    (void)state;
    struct str text = STR(EVENTS);
    struct buf out;
    struct error err;
    for (size_t step = 1; step <= text.len; step++) {
        assert_int_equal(read_text(text, step, 1000, &out, &err), ST_OK);
        assert_int_equal(out.len, strlen(TOLD));
        assert_memory_equal(out.data, TOLD, out.len);
    }
}

/* The stream ends at any byte: the events before are those that are complete. */
static void kube_stream_prefix_yields_complete_events_only(void **state) {
    (void)state;
    struct buf out;
    struct error err;
    for (size_t n = 0; n < strlen(EVENTS); n++) {
        assert_int_equal(read_text(str_make(EVENTS, n), 7, 1000, &out, &err), ST_OK);
        assert_true(out.len <= strlen(TOLD));
        assert_int_equal(strncmp(TOLD, out.data ? out.data : "", out.len), 0);
    }
}

static void kube_stream_invalid_event_is_refused(void **state) {
    static const struct {
        const char *text;
        enum status status;
        const char *why;
    } rows[] = {
        {"<html>", ST_BAD_ANSWER, "it begins with the byte 0x3c"},
        {"[]", ST_BAD_ANSWER, "it begins with the byte 0x5b"},
        {"{]", ST_BAD_ANSWER, "not JSON"},
        {"{\"a\":1,}", ST_BAD_ANSWER, "not JSON"},
        {"{}", ST_BAD_ANSWER, "of the unknown type \"\""},
        {"{\"type\":7}", ST_BAD_ANSWER, "of the unknown type \"\""},
        {"{\"type\":\"GROWN\",\"object\":{}}", ST_BAD_ANSWER, "of the unknown type \"GROWN\""},
        {"{\"type\":\"ADDED\"}", ST_BAD_ANSWER, "(ADDED) without an object"},
        {"{\"type\":\"ADDED\",\"object\":[]}", ST_BAD_ANSWER, "(ADDED) without an object"},
        {"{\"type\":\"ADDED\",\"object\":{}}", ST_BAD_ANSWER, "without a resourceVersion"},
        {"{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":5}}}", ST_BAD_ANSWER,
         "without a resourceVersion"},
        {"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":[]}}", ST_BAD_ANSWER,
         "without a resourceVersion"},
        {"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"10\",\"name\":"
         "\"a name that is too long for one event, as the limit of this test is low\"}}}",
         ST_BODY_TOO_LARGE, "an event of more than 100 bytes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct str text = str_of(rows[i].text);
        for (size_t step = 1; step <= text.len; step += text.len > 1 ? text.len - 1 : 1) {
            struct buf out;
            struct error err = {.status = ST_OK};
            assert_int_equal(read_text(text, step, 100, &out, &err), rows[i].status);
            assert_non_null(strstr(err.text, rows[i].why));
            assert_int_equal(out.len, 0);
        }
    }
}

/* Exactly the maximum size; blanks around the event do not count. */
static void kube_stream_event_over_max_bytes_is_refused(void **state) {
    static const char text[] =
        "  {\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"20\"}}}  ";
    (void)state;
    size_t n = strlen(text) - 4;
    struct buf out;
    struct error err;
    assert_int_equal(read_text(STR(text), 3, n, &out, &err), ST_OK);
    assert_int_equal(read_text(STR(text), 1000, n, &out, &err), ST_OK);
    assert_int_equal(read_text(STR(text), 3, n - 1, &out, &err), ST_BODY_TOO_LARGE);
    assert_int_equal(read_text(STR(text), 1000, n - 1, &out, &err), ST_BODY_TOO_LARGE);
}

static enum status parse_nested(size_t depth) {
    struct buf text;
    struct doc *doc = NULL;
    struct error err;
    buf_init(&text, arena, 4 * depth);
    buf_add_str(&text, STR("{\"a\":"));
    for (size_t i = 1; i < depth; i++) {
        buf_add_char(&text, '[');
    }
    for (size_t i = 1; i < depth; i++) {
        buf_add_char(&text, ']');
    }
    buf_add_char(&text, '}');
    enum status status = kube_object_parse(buf_str(&text), &doc, &err);
    doc_free(doc);
    return status;
}

static void kube_object_parse_accepts_one_object_only(void **state) {
    (void)state;
    struct doc *doc;
    struct error err;
    assert_int_equal(kube_object_parse(STR("{\"message\":\"no\",\"code\":5}"), &doc, &err), ST_OK);
    struct doc_node root = doc_root(doc);
    assert_true(str_is(kube_member_text(&root, "message"), "no"));
    assert_int_equal(kube_member_text(&root, "code").len, 0);
    assert_int_equal(kube_metadata_text(&root, "name").len, 0);
    doc_free(doc);
    assert_int_equal(kube_object_parse(STR(""), &doc, &err), ST_BAD_ANSWER);
    assert_int_equal(kube_object_parse(STR("[1]"), &doc, &err), ST_BAD_ANSWER);
    assert_int_equal(kube_object_parse(STR("{} {}"), &doc, &err), ST_BAD_ANSWER);
    assert_int_equal(parse_nested(200), ST_OK);
    assert_int_equal(parse_nested(201), ST_BAD_ANSWER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kube_stream_events_at_each_split_are_decoded),
        cmocka_unit_test(kube_stream_prefix_yields_complete_events_only),
        cmocka_unit_test(kube_stream_invalid_event_is_refused),
        cmocka_unit_test(kube_stream_event_over_max_bytes_is_refused),
        cmocka_unit_test(kube_object_parse_accepts_one_object_only),
    };
    return cmocka_run_group_tests_name("codec/kube/stream", tests, setup, teardown);
}
