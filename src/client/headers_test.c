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
    struct client_headers_source source = {items, 4, "abc-._~+/9==", TRACEPARENT, false};
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
    const struct client_headers_source of_client = {client_items, 4, "one", NULL, false};
    const struct client_headers_source of_call = {call_items, 2, "two", TRACEPARENT, false};
    const struct client_headers_source none = {0};
    struct client_headers merged;
    struct error err = {0};
    assert_int_equal(
        client_headers_merge(arena, import(&of_client), import(&of_call), false, &merged, &err),
        ST_OK);
    assert_string_equal(print(merged), "A: 1\r\nC: 4\r\nB: 5\r\nD: 6\r\n"
                                       "Authorization: Bearer two\r\n"
                                       "traceparent: " TRACEPARENT "\r\n");
    assert_int_equal(
        client_headers_merge(arena, import(&of_client), import(&none), false, &merged, &err),
        ST_OK);
    assert_int_equal(merged.n, 5);
    assert_int_equal(
        client_headers_merge(arena, import(&none), import(&of_call), false, &merged, &err), ST_OK);
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
        const struct client_headers_source source = {&rows[i].header, 1, NULL, NULL, false};
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
        {{NULL, 0, "", NULL, false}, "bearer_token: expected"},
        {{NULL, 0, "secret token", NULL, false}, "bearer_token: expected"},
        {{NULL, 0, "secret\r\nX: y", NULL, false}, "bearer_token: expected"},
        {{&authorization, 1, "secret", NULL, false}, "one of them is enough"},
        {{NULL, 0, NULL, "", false}, "traceparent: expected"},
        {{NULL, 0, NULL, TRACEPARENT "-", false}, "traceparent: expected"},
        {{NULL, 0, NULL, "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
         "traceparent: expected"},
        {{NULL, 0, NULL, "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
         "traceparent: expected"},
        {{NULL, 0, NULL, "00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
         "traceparent: expected"},
        {{NULL, 0, NULL, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
         "traceparent: expected"},
        {{NULL, 0, NULL, "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
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

static void headers_of_grpc_are_metadata(void **state) {
    (void)state;
    const sluice_header items[] = {
        HEADER("X-Key", "a b"),
        {.size = sizeof(*items), .name = "Any-Bin", .value = "\0\xff ", .value_bytes = 3},
        HEADER("User-Agent", "mine/1"),
    };
    const struct client_headers_source source = {items, 3, "token", TRACEPARENT, true};
    struct client_headers headers = import(&source);
    static const char *const NAMES[] = {"x-key", "any-bin", "user-agent", "authorization",
                                        "traceparent"};
    assert_int_equal(headers.n, 5);
    for (size_t i = 0; i < headers.n; i++) {
        assert_true(str_is(headers.items[i].name, NAMES[i]));
    }
    assert_true(str_is(headers.items[0].value, "a b"));
    assert_int_equal(headers.items[1].value.len, 3);
    assert_memory_equal(headers.items[1].value.ptr, "\0\xff ", 3);
    assert_true(str_is(headers.items[3].value, "Bearer token"));
    const struct client_headers_source of_call = {NULL, 0, "other", NULL, true};
    struct client_headers merged;
    struct error err = {0};
    assert_int_equal(client_headers_merge(arena, headers, import(&of_call), true, &merged, &err),
                     ST_OK);
    assert_int_equal(merged.n, 5);
}

static void headers_that_grpc_does_not_allow_are_refused(void **state) {
    (void)state;
    static const struct {
        sluice_header header;
        const char *says;
    } rows[] = {
        {HEADER("grpc-timeout", "1S"), "grpc-timeout is set by the library"},
        {HEADER("Grpc-X", "1S"), "Grpc-X is set by the library"},
        {HEADER("te", "trailers"), "is set by the library"},
        {HEADER("content-type", "x"), "is set by the library"},
        {HEADER(":path", "/"), "its name is not one of HTTP"},
        {HEADER("a", "gr\xc3\xbc"), "is not ASCII"},
        {HEADER("a", "x\ty"), "control character"},
        {HEADER("a", "x\ny"), "control character"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct client_headers_source source = {&rows[i].header, 1, NULL, NULL, true};
        struct client_headers headers;
        struct error err = {0};
        assert_int_equal(client_headers_import(arena, &source, &headers, &err), ST_BAD_FIELD);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%zu: %s", i, err.text);
        }
    }
    sluice_header many[CLIENT_MAX_METADATA + 1];
    for (size_t i = 0; i < CLIENT_MAX_METADATA + 1; i++) {
        many[i] = (sluice_header)HEADER("a", "1");
    }
    const struct client_headers_source all = {many, CLIENT_MAX_METADATA, NULL, NULL, true};
    const struct client_headers_source over = {many, CLIENT_MAX_METADATA + 1, NULL, NULL, true};
    const struct client_headers none = {0};
    struct client_headers merged;
    struct error err = {0};
    assert_int_equal(client_headers_merge(arena, none, import(&all), true, &merged, &err), ST_OK);
    assert_int_equal(client_headers_merge(arena, import(&over), none, true, &merged, &err),
                     ST_BAD_FIELD);
    assert_non_null(strstr(err.text, "at most 64 headers"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_printed_in_order),
        cmocka_unit_test(headers_of_call_replace_those_of_client),
        cmocka_unit_test(headers_invalid_are_refused),
        cmocka_unit_test(headers_invalid_token_and_traceparent_are_refused),
        cmocka_unit_test(headers_of_grpc_are_metadata),
        cmocka_unit_test(headers_that_grpc_does_not_allow_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
