/* Header fields of the caller: what is allowed, what replaces what, and how they are printed. */
#include "client/headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct arena *arena;

static int start(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    return arena ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

#define HEADER(name_text, value_text)                                                              \
    { .size = sizeof(sluice_header), .name = (name_text), .value = (value_text) }
#define TRACEPARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static const char *print(struct client_headers headers) {
    struct buf out;
    buf_init(&out, arena, 0);
    client_headers_print(&out, headers);
    buf_add_char(&out, '\0');
    assert_false(out.failed);
    return out.data;
}

static struct client_headers import(const struct client_headers_source *source) {
    struct client_headers headers;
    struct error err = {0};
    if (client_headers_import(arena, source, &headers, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    return headers;
}

static void headers_are_printed_in_order(void **state) {
    (void)state;
    const sluice_header items[] = {
        HEADER("X-Key", "a b"),
        HEADER("x-key", ""),
        {.size = sizeof(*items), .name = "Z", .value = "abcdef", .value_bytes = 3},
        HEADER("X-Text", "gr\xc3\xbc\xc3\x9f\tyou"),
    };
    struct client_headers_source source = {items, 4, "abc-._~+/9==", TRACEPARENT};
    assert_string_equal(print(import(&source)), "X-Key: a b\r\nx-key: \r\nZ: abc\r\n"
                                                "X-Text: gr\xc3\xbc\xc3\x9f\tyou\r\n"
                                                "Authorization: Bearer abc-._~+/9==\r\n"
                                                "traceparent: " TRACEPARENT "\r\n");
    source = (struct client_headers_source){0};
    assert_int_equal(import(&source).n, 0);
}

static void headers_of_call_replace_those_of_client(void **state) {
    (void)state;
    const sluice_header client_items[] = {HEADER("A", "1"), HEADER("B", "2"), HEADER("b", "3"),
                                          HEADER("C", "4")};
    const sluice_header call_items[] = {HEADER("B", "5"), HEADER("D", "6")};
    const struct client_headers_source of_client = {client_items, 4, "one", NULL};
    const struct client_headers_source of_call = {call_items, 2, "two", TRACEPARENT};
    const struct client_headers_source none = {0};
    struct client_headers merged;
    struct error err = {0};
    assert_int_equal(
        client_headers_merge(arena, import(&of_client), import(&of_call), &merged, &err), ST_OK);
    assert_string_equal(print(merged), "A: 1\r\nC: 4\r\nB: 5\r\nD: 6\r\n"
                                       "Authorization: Bearer two\r\n"
                                       "traceparent: " TRACEPARENT "\r\n");
    assert_int_equal(client_headers_merge(arena, import(&of_client), import(&none), &merged, &err),
                     ST_OK);
    assert_int_equal(merged.n, 5);
    assert_int_equal(client_headers_merge(arena, import(&none), import(&of_call), &merged, &err),
                     ST_OK);
    assert_int_equal(merged.n, 4);
    assert_true(client_headers_have(merged, STR("AUTHORIZATION")));
    assert_false(client_headers_have(merged, STR("A")));
}

static void headers_invalid_are_refused(void **state) {
    (void)state;
    static const struct {
        sluice_header header;
        const char *says;
    } rows[] = {
        {HEADER("", "x"), "its name is not one of HTTP"},
        {HEADER("a b", "x"), "its name is not one of HTTP"},
        {HEADER("a:", "x"), "its name is not one of HTTP"},
        {HEADER("a\r\nb", "x"), "its name is not one of HTTP"},
        {HEADER("gr\xc3\xbc", "x"), "its name is not one of HTTP"},
        {HEADER(NULL, "x"), "lacks its name or value"},
        {HEADER("a", NULL), "lacks its name or value"},
        {HEADER("a", "secret\r\nb: c"), "the value of a has a control character"},
        {HEADER("a", "secret\x7f"), "the value of a has a control character"},
        {HEADER("a", " secret"), "a space at its start or end"},
        {HEADER("a", "secret\t"), "a space at its start or end"},
        {{.size = sizeof(sluice_header), .name = "a", .value = "secret\0x", .value_bytes = 8},
         "the value of a has a control character"},
        {{.name = "a", .value = "x"}, "sluice_header was given without its size"},
        {HEADER("host", "x"), "host is set by the library"},
        {HEADER("CONTENT-LENGTH", "1"), "is set by the library"},
        {HEADER("Transfer-Encoding", "chunked"), "is set by the library"},
        {HEADER("Accept-Encoding", "gzip"), "is set by the library"},
        {HEADER("Inference-Header-Content-Length", "1"), "is set by the library"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct client_headers_source source = {&rows[i].header, 1, NULL, NULL};
        struct client_headers headers;
        struct error err = {0};
        assert_int_equal(client_headers_import(arena, &source, &headers, &err), ST_BAD_FIELD);
        if (!strstr(err.text, rows[i].says) || strstr(err.text, "secret")) {
            fail_msg("%zu: %s", i, err.text);
        }
    }
}

static void headers_invalid_token_and_traceparent_are_refused(void **state) {
    (void)state;
    static const sluice_header authorization = HEADER("authorization", "Basic x");
    static const struct {
        struct client_headers_source source;
        const char *says;
    } rows[] = {
        {{NULL, 0, "", NULL}, "bearer_token: expected"},
        {{NULL, 0, "secret token", NULL}, "bearer_token: expected"},
        {{NULL, 0, "secret\r\nX: y", NULL}, "bearer_token: expected"},
        {{&authorization, 1, "secret", NULL}, "one of them is enough"},
        {{NULL, 0, NULL, ""}, "traceparent: expected"},
        {{NULL, 0, NULL, TRACEPARENT "-"}, "traceparent: expected"},
        {{NULL, 0, NULL, "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
         "traceparent: expected"},
        {{NULL, 0, NULL, "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
         "traceparent: expected"},
        {{NULL, 0, NULL, "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
         "traceparent: expected"},
        {{NULL, 0, NULL, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"},
         "traceparent: expected"},
        {{NULL, 0, NULL, "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
         "traceparent: expected"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct client_headers headers;
        struct error err = {0};
        assert_int_equal(client_headers_import(arena, &rows[i].source, &headers, &err),
                         ST_BAD_FIELD);
        if (!strstr(err.text, rows[i].says) || strstr(err.text, "secret")) {
            fail_msg("%zu: %s", i, err.text);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_printed_in_order),
        cmocka_unit_test(headers_of_call_replace_those_of_client),
        cmocka_unit_test(headers_invalid_are_refused),
        cmocka_unit_test(headers_invalid_token_and_traceparent_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
