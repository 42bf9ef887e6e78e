/* Which requests web pages may make: heads as browsers, clients, proxies and attackers send
 * them. */
#include "codec/http1/web_access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codec/http1/request.h"
#include "core/base/arena.h"

static const char *const HOSTS[] = {"models.example", "*.pages.example"};
static const char *const ANY_HOST[] = {"*"};
static const char *const ORIGINS[] = {"https://app.example", "http://localhost:3000",
                                      "control=https://admin.example:8443"};
static const char *const ANY_ORIGIN[] = {"*"};

static const struct web_access DEFAULT = {.machine = "node7.rack.example"},
                               NAMED = {.hosts = HOSTS, .n_hosts = 2, .machine = "node7"},
                               OPEN = {.hosts = ANY_HOST, .n_hosts = 1},
                               CORS = {.origins = ORIGINS, .n_origins = 3},
                               CORS_ANY = {.origins = ANY_ORIGIN, .n_origins = 1};
static const struct web_listener LOOPBACK = {true, true, 8000}, LOOPBACK_80 = {true, true, 80},
                                 EVERYWHERE = {true, false, 8000}, UNIX_SOCKET = {false, false, 0};

/* Checks a request with these lines after the request line. Returns: the status; `origin` gets what
 * the response says. */
static enum status check(const struct web_access *access, const struct web_listener *listener,
                         enum web_resource resource, const char *line, const char *fields,
                         char origin[64], struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct http1_request *request = http1_request_new(arena, 65536);
    char text[2048];
    int n = snprintf(text, sizeof(text), "%s HTTP/1.1\r\n%s\r\n", line, fields);
    struct str rest = str_make(text, (size_t)n), body, allow_origin;
    enum http1_request_event event;
    assert_int_equal(http1_request_step(request, &rest, &event, &body, err), ST_OK);
    assert_int_equal(event, HTTP1_REQUEST_HEAD);
    const struct http_head *head = http1_request_head(request);
    enum status st = web_access_check(access, listener, resource, head, &allow_origin, err);
    bool is_plain = web_access_is_plain(access, listener, resource, head);
    assert_int_equal(is_plain, st == ST_OK && !head->names_site && resource != WEB_CONTROL);
    assert_true(!is_plain || allow_origin.len == 0);
    snprintf(origin, 64, "%.*s", STR_ARG(allow_origin));
    arena_free(arena);
    return st;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static const struct {
    const struct web_access *access;
    const struct web_listener *listener;
    const char *host;
    bool fits;
} HOST_ROWS[] = {
    /* addresses, and the names of this machine */
    {&DEFAULT, &LOOPBACK, "127.0.0.1:8000", true},
    {&DEFAULT, &LOOPBACK, "127.0.0.1.:8000", true},
    {&DEFAULT, &LOOPBACK, "10.0.0.1:8000", true},
    {&DEFAULT, &LOOPBACK, "[::1]:8000", true},
    {&DEFAULT, &LOOPBACK, "[::1]", true},
    {&DEFAULT, &LOOPBACK, "[fe80::1]:8000", true},
    {&DEFAULT, &LOOPBACK, "localhost:8000", true},
    {&DEFAULT, &LOOPBACK, "LOCALHOST.:8000", true},
    {&DEFAULT, &LOOPBACK, "models.localhost:8000", true},
    {&DEFAULT, &LOOPBACK, "node7:8000", true},
    {&DEFAULT, &LOOPBACK, "NODE7.rack.example:8000", true},
    /* DNS rebinding: a name with the listener's port */
    {&DEFAULT, &LOOPBACK, "evil.example:8000", false},
    {&DEFAULT, &LOOPBACK, "EVIL.example.:8000", false},
    {&DEFAULT, &LOOPBACK, "evil:8000", false},
    {&DEFAULT, &LOOPBACK, "evil.example:08000", false},
    {&DEFAULT, &LOOPBACK, "evil.example:8000:8000", false},
    {&DEFAULT, &LOOPBACK, "evil.example:x", false},
    {&DEFAULT, &LOOPBACK, "node7.evil.example:8000", false},
    {&DEFAULT, &LOOPBACK, "rack.example:8000", false},
    {&DEFAULT, &LOOPBACK, "127.0.0.1.evil.example:8000", false},
    {&DEFAULT, &LOOPBACK, "127.0.0.256:8000", false},
    {&DEFAULT, &LOOPBACK, "127.0.1:8000", false},
    {&DEFAULT, &LOOPBACK, "1.2.3.4.5:8000", false},
    {&DEFAULT, &LOOPBACK, "1..2.3:8000", false},
    {&DEFAULT, &LOOPBACK, "1.2.3.:8000", false},
    {&DEFAULT, &LOOPBACK, ".localhost:8000", false},
    {&DEFAULT, &LOOPBACK, "localhost.evil.example:8000", false},
    {&DEFAULT, &LOOPBACK, "evillocalhost:8000", false},
    {&DEFAULT, &LOOPBACK, ":8000", false},
    {&DEFAULT, &LOOPBACK, "::1:8000", false},
    {&DEFAULT, &LOOPBACK_80, "evil.example", false},
    {&DEFAULT, &LOOPBACK_80, "evil.example:80", false},
    {&DEFAULT, &LOOPBACK_80, "evil.example:", false},
    {&DEFAULT, &LOOPBACK_80, "localhost", true},
    /* a proxy in front, which passes on the name that its clients use */
    {&DEFAULT, &LOOPBACK, "models.example", true},
    {&DEFAULT, &LOOPBACK, "models.example:443", true},
    {&DEFAULT, &LOOPBACK, "models.example:8080", true},
    {&DEFAULT, &LOOPBACK, "upstream", true},
    {&DEFAULT, &LOOPBACK_80, "models.example:8080", true},
    /* other listeners */
    {&DEFAULT, &EVERYWHERE, "evil.example:8000", true},
    {&DEFAULT, &UNIX_SOCKET, "evil.example", true},
    /* --allowed-host */
    {&NAMED, &LOOPBACK, "models.example:8000", true},
    {&NAMED, &LOOPBACK, "Models.Example.", true},
    {&NAMED, &LOOPBACK, "a.pages.example:8000", true},
    {&NAMED, &LOOPBACK, "a.b.pages.example", true},
    {&NAMED, &LOOPBACK, "127.0.0.1:8000", true},
    {&NAMED, &LOOPBACK, "node7:8000", true},
    {&NAMED, &LOOPBACK, "pages.example:8000", false},
    {&NAMED, &LOOPBACK, ".pages.example:8000", false},
    {&NAMED, &LOOPBACK, "evilpages.example:8000", false},
    {&NAMED, &LOOPBACK, "evil.example", false},
    {&NAMED, &LOOPBACK, "a.models.example", false},
    {&NAMED, &EVERYWHERE, "evil.example:8000", false},
    {&NAMED, &EVERYWHERE, "10.0.0.1:8000", true},
    {&NAMED, &UNIX_SOCKET, "evil.example", true},
    {&OPEN, &LOOPBACK, "evil.example:8000", true},
};

static void host_rows_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(HOST_ROWS) / sizeof(HOST_ROWS[0]); i++) {
        char fields[256], origin[64];
        struct error err = {.text = ""};
        snprintf(fields, sizeof(fields), "Host: %s\r\n", HOST_ROWS[i].host);
        enum status st = check(HOST_ROWS[i].access, HOST_ROWS[i].listener, WEB_SERVICE, "GET /v2",
                               fields, origin, &err);
        if (st != (HOST_ROWS[i].fits ? ST_OK : ST_UNKNOWN_HOST)) {
            fail_msg("row %zu, %s: %s %s", i, HOST_ROWS[i].host, status_name(st), err.text);
        }
        assert_int_equal(check(HOST_ROWS[i].access, HOST_ROWS[i].listener, WEB_ANY_SITE, "GET /v2",
                               fields, origin, &err),
                         ST_OK);
    }
}

static void host_of_absolute_form_counts(void **state) {
    (void)state;
    char origin[64];
    struct error err;
    /* RFC 9112, 3.2.2: the Host field is ignored. */
    assert_int_equal(check(&DEFAULT, &LOOPBACK, WEB_SERVICE, "GET http://evil.example:8000/v2",
                           "Host: localhost:8000\r\n", origin, &err),
                     ST_UNKNOWN_HOST);
    assert_int_equal(check(&DEFAULT, &LOOPBACK, WEB_SERVICE, "GET http://localhost:8000/v2",
                           "Host: evil.example:8000\r\n", origin, &err),
                     ST_OK);
}

static void host_error_names_setting(void **state) {
    (void)state;
    char origin[64];
    struct error err;
    assert_int_equal(check(&DEFAULT, &LOOPBACK, WEB_SERVICE, "GET /v2",
                           "Host: evil.example:8000\r\n", origin, &err),
                     ST_UNKNOWN_HOST);
    assert_non_null(strstr(err.text, "\"evil.example\""));
    assert_non_null(strstr(err.text, "--allowed-host"));
}

/* ---- sites ----------------------------------------------------------------------------------- */

#define FORM "Content-Type: application/x-www-form-urlencoded\r\n"

static const struct {
    const struct web_access *access;
    enum web_resource resource;
    const char *line, *fields;
    enum status status;
    const char *origin; /* of the response */
} SITE_ROWS[] = {
    /* clients that are not browsers */
    {&DEFAULT, WEB_CONTROL, "POST /", "", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Sec-Fetch-Mode: cors\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Content-Type: application/x-www-form-urlencoded\r\n", ST_OK,
     ""},
    /* the server's own pages, and what the user opens */
    {&DEFAULT, WEB_CONTROL, "POST /", "Origin: http://h:8000\r\nSec-Fetch-Site: same-origin\r\n",
     ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Origin: http://h:8000\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Origin: HTTP://H.:8000\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "GET /", "Sec-Fetch-Site: none\r\n", ST_OK, ""},
    /* behind a proxy that changes Host: the browser knows better */
    {&DEFAULT, WEB_CONTROL, "POST /",
     "Origin: https://models.example\r\nSec-Fetch-Site: same-origin\r\n", ST_OK, ""},
    /* pages of other sites */
    {&DEFAULT, WEB_SERVICE, "POST /", "Sec-Fetch-Site: cross-site\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "sec-fetch-site: same-site\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "GET /", "Sec-Fetch-Site: cross-site\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "HEAD /", "Sec-Fetch-Site: cross-site\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "PUT /", "Sec-Fetch-Site: cross-site\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Sec-Fetch-Site: Same-Origin\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Sec-Fetch-Site: \r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Sec-Fetch-Site: same-origin, cross-site\r\n",
     ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /",
     "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: https://evil.example\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: null\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin:\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: http://h:8001\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: http://h\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: http://h:8000.evil.example\r\n", ST_FOREIGN_ORIGIN,
     ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: http://u@h:8000\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: h:8000\r\n", ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: http://h:8000 http://evil.example\r\n",
     ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Origin: http://h:8000\r\nOrigin: http://evil.example\r\n",
     ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_ANY_SITE, "GET /", "Sec-Fetch-Site: cross-site\r\n", ST_OK, ""},
    /* a link opens a page, but not in a frame, and no form is sent */
    {&DEFAULT, WEB_CONTROL, "GET /",
     "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
     ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "GET /",
     "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
     ST_FOREIGN_ORIGIN, ""},
    {&DEFAULT, WEB_CONTROL, "POST /",
     "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
     ST_FOREIGN_ORIGIN, ""},
    /* allowed origins */
    {&CORS, WEB_SERVICE, "POST /", "Origin: https://app.example\r\nSec-Fetch-Site: cross-site\r\n",
     ST_OK, "https://app.example"},
    {&CORS, WEB_SERVICE, "GET /", "Origin: https://app.example:443\r\n", ST_OK,
     "https://app.example:443"},
    {&CORS, WEB_ANY_SITE, "GET /", "Origin: http://localhost:3000\r\n", ST_OK,
     "http://localhost:3000"},
    {&CORS, WEB_SERVICE, "OPTIONS /", "Origin: http://localhost:3000\r\n", ST_OK,
     "http://localhost:3000"},
    {&CORS, WEB_SERVICE, "POST /", "Origin: http://app.example\r\n", ST_FOREIGN_ORIGIN, ""},
    {&CORS, WEB_SERVICE, "POST /", "Origin: https://app.example.evil\r\n", ST_FOREIGN_ORIGIN, ""},
    {&CORS, WEB_SERVICE, "POST /", "Origin: http://localhost:3001\r\n", ST_FOREIGN_ORIGIN, ""},
    {&CORS, WEB_SERVICE, "POST /", "Origin: https://app.example\r\nOrigin: https://app.example\r\n",
     ST_FOREIGN_ORIGIN, ""},
    {&CORS, WEB_CONTROL, "POST /", "Origin: https://app.example\r\n", ST_FOREIGN_ORIGIN, ""},
    {&CORS, WEB_CONTROL, "POST /", "Origin: https://admin.example:8443\r\n", ST_OK,
     "https://admin.example:8443"},
    {&CORS, WEB_SERVICE, "POST /", "Origin: https://admin.example:8443\r\n", ST_OK,
     "https://admin.example:8443"},
    {&CORS, WEB_SERVICE, "POST /", "Origin: null\r\n", ST_FOREIGN_ORIGIN, ""},
    {&CORS_ANY, WEB_SERVICE, "POST /", "Origin: null\r\n", ST_OK, "*"},
    {&CORS_ANY, WEB_SERVICE, "POST /", "Origin: https://evil.example\r\n", ST_OK, "*"},
    {&CORS_ANY, WEB_SERVICE, "GET /", "Sec-Fetch-Site: cross-site\r\n", ST_OK, "*"},
    {&CORS_ANY, WEB_CONTROL, "POST /", "Origin: https://evil.example\r\n", ST_FOREIGN_ORIGIN, ""},
    /* media types of the control group */
    {&DEFAULT, WEB_CONTROL, "POST /", "Content-Type: text/plain\r\n", ST_BAD_MEDIA_TYPE, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Content-Type: Text/Plain ;charset=UTF-8\r\n",
     ST_BAD_MEDIA_TYPE, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Content-Type: multipart/form-data; boundary=x\r\n",
     ST_BAD_MEDIA_TYPE, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "Content-Type: application/json\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", "User-Agent: Mozilla/5.0\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", FORM "User-Agent: Mozilla/5.0 (X11)\r\n", ST_BAD_MEDIA_TYPE,
     ""},
    {&DEFAULT, WEB_CONTROL, "POST /", FORM "User-Agent: Mozilla\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", FORM "User-Agent: curl/8.0\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /", FORM, ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "POST /",
     FORM "User-Agent: Mozilla/5.0\r\nSec-Fetch-Site: same-origin\r\n", ST_OK, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", FORM "User-Agent: Mozilla/5.0\r\n", ST_OK, ""},
    {&DEFAULT, WEB_CONTROL, "GET /", "Content-Type: text/plain\r\n", ST_OK, ""},
    {&DEFAULT, WEB_SERVICE, "POST /", "Content-Type: text/plain\r\n", ST_OK, ""},
};

static void site_rows_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(SITE_ROWS) / sizeof(SITE_ROWS[0]); i++) {
        char fields[256], origin[64];
        struct error err = {.text = ""};
        snprintf(fields, sizeof(fields), "Host: h:8000\r\n%s", SITE_ROWS[i].fields);
        enum status st = check(SITE_ROWS[i].access, &EVERYWHERE, SITE_ROWS[i].resource,
                               SITE_ROWS[i].line, fields, origin, &err);
        if (st != SITE_ROWS[i].status) {
            fail_msg("row %zu, %s: %s %s", i, SITE_ROWS[i].fields, status_name(st), err.text);
        }
        assert_string_equal(origin, SITE_ROWS[i].origin);
        assert_true(st != ST_FOREIGN_ORIGIN || strstr(err.text, "--allowed-origin"));
    }
}

static void site_origin_without_port_is_that_of_the_scheme(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        enum status status;
    } rows[] = {
        {"Host: h\r\nOrigin: https://h\r\n", ST_OK},
        {"Host: h\r\nOrigin: http://h\r\n", ST_OK},
        {"Host: h:443\r\nOrigin: https://h\r\n", ST_OK},
        {"Host: h:80\r\nOrigin: http://h\r\n", ST_OK},
        {"Host: h:80\r\nOrigin: https://h\r\n", ST_FOREIGN_ORIGIN},
        {"Host: h\r\nOrigin: http://h:8000\r\n", ST_FOREIGN_ORIGIN},
        {"Host: [::1]:8000\r\nOrigin: http://[::1]:8000\r\n", ST_OK},
        {"Host: [::1]:8000\r\nOrigin: http://[::2]:8000\r\n", ST_FOREIGN_ORIGIN},
        {"Host: [::1]:8000\r\nOrigin: http://[::1]:8001\r\n", ST_FOREIGN_ORIGIN},
        {"Host: \r\nOrigin: http://h\r\n", ST_FOREIGN_ORIGIN},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char origin[64];
        struct error err;
        assert_int_equal(
            check(&DEFAULT, &EVERYWHERE, WEB_SERVICE, "POST /", rows[i].fields, origin, &err),
            rows[i].status);
    }
}

static void preflight_is_options_with_origin_and_method(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is;
        const char *headers;
    } rows[] = {
        {"OPTIONS / HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\nAccess-Control-Request-Method: "
         "POST\r\n"
         "Access-Control-Request-Headers: content-type,x-a\r\n\r\n",
         true, "content-type,x-a"},
        {"OPTIONS / HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\nAccess-Control-Request-Method: "
         "POST\r\n\r\n",
         true, ""},
        {"OPTIONS / HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\n\r\n", false, ""},
        {"OPTIONS / HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: POST\r\n\r\n", false, ""},
        {"POST / HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\nAccess-Control-Request-Method: "
         "POST\r\n\r\n",
         false, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct http1_request *request = http1_request_new(arena, 65536);
        struct str rest = str_of(rows[i].text), body, headers;
        enum http1_request_event event;
        struct error err;
        assert_int_equal(http1_request_step(request, &rest, &event, &body, &err), ST_OK);
        assert_int_equal(web_access_is_preflight(http1_request_head(request), &headers),
                         rows[i].is);
        assert_true(str_is(headers, rows[i].headers));
        arena_free(arena);
    }
}

/* ---- settings -------------------------------------------------------------------------------- */

static void validate_hosts_match_rows(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool fits;
    } rows[] = {
        {"*", true},           {"models.example", true},
        {"*.example", true},   {"node_7", true},
        {"", false},           {"*.", false},
        {"a.*", false},        {"**", false},
        {"http://a", false},   {"a:8000", false},
        {"a.", false},         {".a", false},
        {"a b", false},        {"[::1]", false},
        {"*a.example", false}, {"a/b", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {.text = ""};
        struct web_access access = {.hosts = &rows[i].text, .n_hosts = 1};
        enum status st = web_access_validate(&access, &err);
        if (st != (rows[i].fits ? ST_OK : ST_BAD_CONFIG)) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        assert_true(st == ST_OK || strstr(err.text, "--allowed-host"));
    }
}

static void validate_origins_match_rows(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool fits;
    } rows[] = {
        {"*", true},
        {"https://app.example", true},
        {"http://localhost:3000", true},
        {"http://[::1]:3000", true},
        {"chrome-extension://abcdef", true},
        {"control=https://app.example", true},
        {"", false},
        {"null", false},
        {"control=*", false},
        {"control=", false},
        {"app.example", false},
        {"https://", false},
        {"https://app.example/", false},
        {"https://app.example:0", false},
        {"https://app.example:65536", false},
        {"https://app.example:x", false},
        {"https://u@app.example", false},
        {"https://*.example/x", false},
        {"https://a.example,https://b.example", false},
        {"admin=https://app.example", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {.text = ""};
        struct web_access access = {.origins = &rows[i].text, .n_origins = 1};
        enum status st = web_access_validate(&access, &err);
        if (st != (rows[i].fits ? ST_OK : ST_BAD_CONFIG)) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        assert_true(st == ST_OK || strstr(err.text, "--allowed-origin"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_rows_match),
        cmocka_unit_test(host_of_absolute_form_counts),
        cmocka_unit_test(host_error_names_setting),
        cmocka_unit_test(site_rows_match),
        cmocka_unit_test(site_origin_without_port_is_that_of_the_scheme),
        cmocka_unit_test(preflight_is_options_with_origin_and_method),
        cmocka_unit_test(validate_hosts_match_rows),
        cmocka_unit_test(validate_origins_match_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
