/* Heads of responses, byte for byte. */
#include "codec/http1/response_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct http_field FIELDS[] = {
    {{"Allow", 5}, {"GET, HEAD", 9}},
    {{"X", 1}, {"", 0}},
};

static const struct {
    struct http1_response_head reply;
    const char *text;
} ROWS[] = {
    {{.status = 200, .content_type = "application/json", .content_length = 17},
     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"},
    {{.status = 200}, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
    {{.status = 405, .fields = FIELDS, .n_fields = 2, .close = true},
     "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nAllow: GET, HEAD\r\nX: \r\n"
     "Connection: close\r\n\r\n"},
    {{.status = 200,
      .common = {"Server: s\r\n", 11},
      .content_length = UINT64_MAX,
      .keep_alive = true},
     "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 18446744073709551615\r\n"
     "Connection: keep-alive\r\n\r\n"},
    {{.status = 200, .allow_origin = {"https://a.example", 17}},
     "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccess-Control-Allow-Origin: https://a.example\r\n"
     "Vary: Origin\r\nAccess-Control-Expose-Headers: Inference-Header-Content-Length, Retry-After, "
     "WWW-Authenticate, endpoint-load-metrics\r\n\r\n"},
    {{.status = 299}, "HTTP/1.1 299 Unknown\r\nContent-Length: 0\r\n\r\n"},
};

static void response_head_print_matches_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 0);
        http1_response_head_print(&out, &ROWS[i].reply);
        assert_false(out.failed);
        if (!str_is(buf_str(&out), ROWS[i].text)) {
            fail_msg("expected\n%s\ngot\n%.*s", ROWS[i].text, (int)out.len, out.data);
        }
        arena_free(arena);
    }
}

static void http1_reason_each_status_has_a_phrase(void **state) {
    (void)state;
    for (int st = 0; st < ST_COUNT_; st++) {
        assert_string_not_equal(http1_reason(status_http((enum status)st)), "Unknown");
    }
}

static void common_fields_print_has_server_and_date(void **state) {
    (void)state;
    static const struct {
        time_t now;
        const char *text;
    } DATES[] = {
        {784111777, "Server: s\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"},
        {0, "Server: s\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"},
        {951782400, "Server: s\r\nDate: Tue, 29 Feb 2000 00:00:00 GMT\r\n"},
        {4102444799, "Server: s\r\nDate: Thu, 31 Dec 2099 23:59:59 GMT\r\n"},
    };
    char out[HTTP1_COMMON_FIELDS_BYTES];
    for (size_t i = 0; i < sizeof(DATES) / sizeof(DATES[0]); i++) {
        assert_true(str_is(http1_common_fields_print(out, "s", DATES[i].now), DATES[i].text));
    }
    char name[400];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_true(http1_common_fields_print(out, name, 0).len > 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_head_print_matches_rows),
        cmocka_unit_test(http1_reason_each_status_has_a_phrase),
        cmocka_unit_test(common_fields_print_has_server_and_date),
    };
    return cmocka_run_group_tests_name("codec/http1/response_head", tests, NULL, NULL);
}
