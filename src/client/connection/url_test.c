/* URLs: the parsed parts, and the error texts of invalid ones. */
#include "client/connection/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void url_each_valid_text_is_parsed(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum client_protocol protocol;
        bool is_unix;
        const char *host;
        unsigned port;
        const char *path, *base, *authority;
    } rows[] = {
        {"http://localhost", CLIENT_HTTP, false, "localhost", 80, NULL, "", "localhost"},
        {"http://localhost:8000", CLIENT_HTTP, false, "localhost", 8000, NULL, "",
         "localhost:8000"},
        {"http://127.0.0.1:8000/", CLIENT_HTTP, false, "127.0.0.1", 8000, NULL, "",
         "127.0.0.1:8000"},
        {"http://a-b.example:1/x/y/", CLIENT_HTTP, false, "a-b.example", 1, NULL, "/x/y",
         "a-b.example:1"},
        {"http://[::1]:8000", CLIENT_HTTP, false, "::1", 8000, NULL, "", "[::1]:8000"},
        {"http://[fe80::1]", CLIENT_HTTP, false, "fe80::1", 80, NULL, "", "[fe80::1]"},
        {"http+unix:/run/x.sock", CLIENT_HTTP, true, "localhost", 0, "/run/x.sock", "",
         "localhost"},
        {"http+unix:///run/x.sock", CLIENT_HTTP, true, "localhost", 0, "/run/x.sock", "",
         "localhost"},
        {"https://h", CLIENT_HTTP, false, "h", 443, NULL, "", "h"},
        {"https://h:8443/b", CLIENT_HTTP, false, "h", 8443, NULL, "/b", "h:8443"},
        {"grpc://h:8001", CLIENT_GRPC, false, "h", 8001, NULL, "", "h:8001"},
        {"grpc://[::1]:8001/", CLIENT_GRPC, false, "::1", 8001, NULL, "", "[::1]:8001"},
        {"grpcs://h:8443", CLIENT_GRPC, false, "h", 8443, NULL, "", "h:8443"},
        {"grpc+unix:/run/x.sock", CLIENT_GRPC, true, "localhost", 0, "/run/x.sock", "",
         "localhost"},
        {"grpc+unix:///run/x.sock", CLIENT_GRPC, true, "localhost", 0, "/run/x.sock", "",
         "localhost"},
        {"tcp://h:9000", CLIENT_MIP, false, "h", 9000, NULL, "", "h:9000"},
        {"tcp://[::1]:9000/", CLIENT_MIP, false, "::1", 9000, NULL, "", "[::1]:9000"},
        {"unix:///run/x.sock", CLIENT_MIP, true, "localhost", 0, "/run/x.sock", "", "localhost"},
        {"unix://x.sock", CLIENT_MIP, true, "localhost", 0, "x.sock", "", "localhost"},
        {"unix://here/x.sock", CLIENT_MIP, true, "localhost", 0, "here/x.sock", "", "localhost"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_url url;
        struct error err = {0};
        if (client_url_parse(arena, str_of(rows[i].text), &url, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        assert_int_equal(url.protocol, rows[i].protocol);
        assert_int_equal(url.is_tls, strncmp(rows[i].text, "https:", 6) == 0 ||
                                         strncmp(rows[i].text, "grpcs:", 6) == 0);
        assert_int_equal(url.is_unix, rows[i].is_unix);
        assert_string_equal(url.text.ptr, rows[i].text);
        assert_true(str_eq(client_url_endpoint(&url), url.is_unix ? url.path : url.authority));
        assert_string_equal(url.host.ptr, rows[i].host);
        assert_int_equal(url.port, rows[i].port);
        if (rows[i].path) {
            assert_string_equal(url.path.ptr, rows[i].path);
        }
        assert_true(str_is(url.base, rows[i].base));
        assert_true(str_is(url.authority, rows[i].authority));
        arena_free(arena);
    }
}

static void url_each_invalid_text_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "did you mean http://"},
        {"localhost:8000", "did you mean http://localhost:8000?"},
        {"localhost", "did you mean http://localhost?"},
        {"unix:/x", "did you mean unix:///x?"},
        {"unix://", "the path of a socket"},
        {"unix:///", "the path of a socket"},
        {"tcp://h", "the port is missing"},
        {"tcp://h:0", "the port"},
        {"tcp://h:9/x", "a path after SCHEME"},
        {"grpc://h", "the port is missing"},
        {"grpc://h:1/x", "a path after SCHEME"},
        {"grpc+unix:x.sock", "expected the absolute path of a socket: grpc+unix:/"},
        {"tcp:h:9", "expected http://HOST:PORT"},
        {"ftp://a", "tcp://HOST:PORT or unix:///path/to.sock for MIP"},
        {"http://", "the host"},
        {"http://:80", "the host"},
        {"http://a b", "the host"},
        {"http://a%20b", "the host"},
        {"http://u@h", "user name"},
        {"http://h:", "the port"},
        {"http://h:0", "the port"},
        {"http://h:65536", "the port"},
        {"http://h:+80", "the port"},
        {"http://h:80x", "the port"},
        {"http://[::1", "bracket"},
        {"http://[::1]8", "only :PORT"},
        {"http://[g::1]:8", "the host"},
        {"http://h?x", "query"},
        {"http://h/a#b", "fragment"},
        {"http://h/a b", "percent-encoded"},
        {"http://h/\r\nX: y", "percent-encoded"},
        {"http+unix:", "absolute path"},
        {"http+unix:x.sock", "absolute path"},
        {"http+unix://", "absolute path"},
        {"http+unix:/"
         "0123456789012345678901234567890123456789012345678901234567890123456789"
         "0123456789012345678901234567890123456789",
         "107"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_url url;
        struct error err = {0};
        assert_int_equal(client_url_parse(arena, str_of(rows[i].text), &url, &err), ST_BAD_CONFIG);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].text, err.text, rows[i].says);
        }
        arena_free(arena);
    }
}

static void url_other_protocol_error_names_urls(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct client_url url;
    struct error err = {0};
    assert_int_equal(client_url_parse(arena, STR("tcp://h:9"), &url, &err), ST_OK);
    assert_int_equal(client_url_expect(&url, CLIENT_MIP, "x", &err), ST_OK);
    assert_int_equal(client_url_expect(&url, CLIENT_HTTP, "health", &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"tcp://h:9\" is the URL of a server of MIP; health is for "
                                     "KServe v2: http://"));
    assert_int_equal(client_url_parse(arena, STR("http://h"), &url, &err), ST_OK);
    assert_int_equal(client_url_expect(&url, CLIENT_MIP, "an inference of items", &err),
                     ST_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tcp://HOST:PORT or unix:///"));
    assert_int_equal(client_url_parse(arena, STR("grpc://h:1"), &url, &err), ST_OK);
    assert_int_equal(client_url_expect(&url, CLIENT_HTTP, "x", &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.text, "is the URL of a server of gRPC; x is for KServe v2: http:"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(url_each_valid_text_is_parsed),
                                       cmocka_unit_test(url_each_invalid_text_is_refused),
                                       cmocka_unit_test(url_other_protocol_error_names_urls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
