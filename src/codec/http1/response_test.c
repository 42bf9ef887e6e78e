/* HTTP/1.1 responses: each row is the bytes of a connection and their meaning, parsed whole, at
 * every split, and byte by byte; errors are errors at every split too. */
#include "codec/http1/response.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct received {
    int status;
    char body[256];
    size_t n_body;
    size_t rest; /* bytes after the response */
    bool done;
    bool keeps_alive;
    bool failed;
    struct error err;
};

/* Feeds one piece. Returns: true while more is needed. */
static bool feed(struct http1_response *response, struct str data, struct received *out) {
    enum http1_response_event event = HTTP1_RESPONSE_MORE;
    do {
        struct str piece = {0};
        if (http1_response_step(response, &data, &event, &piece, &out->err) != ST_OK) {
            out->failed = true;
            return false;
        }
        if (event == HTTP1_RESPONSE_HEAD) {
            out->status = http1_response_status(response);
        }
        if (event == HTTP1_RESPONSE_BODY) {
            assert_true(piece.len > 0 && out->n_body + piece.len <= sizeof(out->body));
            memcpy(out->body + out->n_body, piece.ptr, piece.len);
            out->n_body += piece.len;
        }
    } while (event != HTTP1_RESPONSE_MORE && event != HTTP1_RESPONSE_DONE);
    out->done = event == HTTP1_RESPONSE_DONE;
    out->rest = data.len;
    return !out->done;
}

static void finish(struct http1_response *response, bool closes, struct received *out) {
    if (!out->done && !out->failed && closes) {
        out->failed = http1_response_eof(response, &out->err) != ST_OK;
        out->done = !out->failed;
    }
    if (out->done) {
        out->keeps_alive = http1_response_keeps_alive(response);
    }
}

/* Parses `text` in pieces: the first of `first` bytes, then `step` at a time, each in a block of
 * its own so that a sanitizer sees a read past it. */
static struct received read_split(struct str text, size_t first, size_t step, bool head_request,
                                  bool closes) {
    struct received out = {0};
    struct http1_response *response = http1_response_new();
    assert_non_null(response);
    http1_response_begin(response, head_request);
    size_t n = first;
    bool more = true;
    while (more && text.len > 0) {
        n = n < text.len ? n : text.len;
        char *block = malloc(n + (n == 0));
        memcpy(block, text.ptr, n);
        more = feed(response, str_make(block, n), &out);
        text = str_make(text.ptr + n, text.len - n);
        free(block);
        n = step;
    }
    if (out.done) {
        out.rest += text.len;
    }
    finish(response, closes, &out);
    http1_response_free(response);
    return out;
}

struct row {
    const char *what;
    const char *text;
    bool head_request, closes;
    int status;       /* 0: an error */
    const char *body; /* or, for an error, part of the message */
    bool keeps_alive;
    size_t rest;
};

static void check_reading(const struct row *row, struct received got, size_t split) {
    if (row->status == 0) {
        if (!got.failed || !strstr(got.err.text, row->body)) {
            fail_msg("%s, split at %zu: \"%s\"", row->what, split, got.err.text);
        }
        assert_int_equal(got.err.status, ST_BAD_ANSWER);
        return;
    }
    if (got.failed || !got.done || got.status != row->status) {
        fail_msg("%s, split at %zu: status %d, %s", row->what, split, got.status, got.err.text);
    }
    if (got.n_body != strlen(row->body) || memcmp(got.body, row->body, got.n_body) != 0) {
        fail_msg("%s, split at %zu: body \"%.*s\"", row->what, split, (int)got.n_body, got.body);
    }
    if (got.keeps_alive != row->keeps_alive || got.rest != row->rest) {
        fail_msg("%s, split at %zu: keep-alive %d, rest %zu", row->what, split, got.keeps_alive,
                 got.rest);
    }
}

static void check_rows(const struct row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct str text = str_of(rows[i].text);
        for (size_t split = 0; split <= text.len; split++) {
            check_reading(&rows[i],
                          read_split(text, split, text.len, rows[i].head_request, rows[i].closes),
                          split);
        }
        check_reading(&rows[i], read_split(text, 1, 1, rows[i].head_request, rows[i].closes), 1);
    }
}

static void http1_response_valid_at_each_split_is_decoded(void **state) {
    (void)state;
    static const struct row rows[] = {
        {.what = "a length",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
         .status = 200,
         .body = "hello",
         .keeps_alive = true},
        {.what = "no body",
         .text = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
         .status = 400,
         .body = "",
         .keeps_alive = true},
        {.what = "no reason phrase",
         .text = "HTTP/1.1 200 \r\ncontent-length:2\r\n\r\n{}",
         .status = 200,
         .body = "{}",
         .keeps_alive = true},
        {.what = "chunks, an extension, a trailer",
         .text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n",
         .status = 200,
         .body = "hello",
         .keeps_alive = true},
        {.what = "until the end of the connection",
         .text = "HTTP/1.1 200 OK\r\nServer: x\r\n\r\nhello",
         .closes = true,
         .status = 200,
         .body = "hello"},
        {.what = "Connection: close",
         .text = "HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
         .status = 503,
         .body = "x"},
        {.what = "HTTP/1.0",
         .text = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
         .status = 200,
         .body = "x"},
        {.what = "HEAD",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
         .head_request = true,
         .status = 200,
         .body = "",
         .keeps_alive = true},
        {.what = "204 with a length",
         .text = "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
         .status = 204,
         .body = "",
         .keeps_alive = true},
        {.what = "interim answers",
         .text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
                 "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
         .status = 200,
         .body = "ok",
         .keeps_alive = true},
        {.what = "bytes behind it",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP",
         .status = 200,
         .body = "ok",
         .keeps_alive = true,
         .rest = 4},
    };
    check_rows(rows, sizeof(rows) / sizeof(*rows));
}

static void http1_response_invalid_at_each_split_is_refused(void **state) {
    (void)state;
    static const struct row rows[] = {
        {.what = "not HTTP", .text = "SSH-2.0-x\r\n", .body = "not HTTP/1.1"},
        {.what = "HTTP/2", .text = "HTTP/2.0 200 OK\r\n\r\n", .body = "version"},
        {.what = "a bare LF",
         .text = "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
         .body = "not HTTP/1.1"},
        {.what = "a bare LF behind a field",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n",
         .body = "not HTTP/1.1"},
        {.what = "a folded field",
         .text = "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
         .body = "not HTTP/1.1"},
        {.what = "a space before the colon",
         .text = "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
         .body = "not HTTP/1.1"},
        {.what = "two lengths",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
         .body = "not HTTP/1.1"},
        {.what = "a length with a sign",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
         .body = "not HTTP/1.1"},
        {.what = "a length over 64 bits",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\na",
         .body = "not HTTP/1.1"},
        {.what = "a length beside chunks",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         .body = "not HTTP/1.1"},
        {.what = "a coding we can't undo",
         .text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
         .body = "not chunked"},
        {.what = "a chunk size that wraps round",
         .text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\na",
         .body = "not HTTP/1.1"},
        {.what = "101",
         .text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
         .body = "101"},
        {.what = "closed in the head",
         .text = "HTTP/1.1 200 OK\r\nContent-",
         .closes = true,
         .body = "in the middle"},
        {.what = "closed in the body",
         .text = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel",
         .closes = true,
         .body = "in the middle"},
        {.what = "closed between chunks",
         .text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
         .closes = true,
         .body = "in the middle"},
        {.what = "closed at once", .text = "", .closes = true, .body = "without an answer"},
    };
    check_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* A prefix of a response with a length is never complete. */
static void http1_response_prefix_is_incomplete(void **state) {
    (void)state;
    struct str text = STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\nhello");
    for (size_t n = 0; n < text.len; n++) {
        struct received got = read_split(str_make(text.ptr, n), n, n, false, false);
        assert_false(got.done);
        assert_false(got.failed);
    }
}

static void http1_response_find_ignores_case_and_trailers(void **state) {
    (void)state;
    struct str text =
        STR("HTTP/1.1 200 OK\r\nEmpty:\r\nInference-Header-Content-Length: \t12 \r\n"
            "twice: a\r\nTWICE: b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: 1\r\n\r\n");
    struct http1_response *response = http1_response_new();
    struct received got = {0};
    assert_false(feed(response, text, &got));
    struct str value = {0};
    uint64_t length;
    assert_int_equal(http1_response_find(response, "inference-header-content-length", &value), 1);
    assert_true(str_is(value, "12"));
    assert_int_equal(http1_response_find(response, "Twice", &value), 2);
    assert_true(str_is(value, "a"));
    assert_int_equal(http1_response_find(response, "empty", &value), 1);
    assert_int_equal(value.len, 0);
    assert_int_equal(http1_response_find(response, "t", &value), 0);
    assert_false(http1_response_content_length(response, &length));

    /* the next response on the same connection */
    http1_response_begin(response, false);
    assert_false(feed(response, STR("HTTP/1.1 404 x\r\nContent-Length: 1\r\n\r\n!"), &got));
    assert_int_equal(http1_response_status(response), 404);
    assert_true(http1_response_content_length(response, &length));
    assert_int_equal(length, 1);
    assert_int_equal(http1_response_find(response, "twice", &value), 0);
    http1_response_free(response);
}

/* A head over the limit of bytes and of fields, and too many interim responses. */
static void http1_response_over_limits_is_refused(void **state) {
    (void)state;
    static const char *const lines[] = {"A: 0123456789012345678901234567890123456789\r\n",
                                        "A: b\r\n", "\r\nHTTP/1.1 102 x\r\n"};
    static const char *const why[] = {"128 fields", "128 fields", "interim"};
    for (size_t i = 0; i < 3; i++) {
        struct http1_response *response = http1_response_new();
        struct received got = {0};
        bool more = feed(response, STR("HTTP/1.1 102 OK\r\n"), &got);
        for (int k = 0; more && k < 1000; k++) {
            more = feed(response, str_of(lines[i]), &got);
        }
        assert_true(got.failed);
        assert_non_null(strstr(got.err.text, why[i]));
        /* the error is permanent */
        assert_false(feed(response, STR("x"), &got));
        http1_response_free(response);
    }
    static const char *const beginnings[] = {
        "HTTP/1.1 200 OK\r\nA: ", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: "};
    char big[1024];
    memset(big, 'a', sizeof(big));
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++) {
        struct http1_response *response = http1_response_new();
        struct received got = {0};
        bool more = feed(response, str_of(beginnings[i]), &got);
        for (int k = 0; more && k < 100; k++) {
            more = feed(response, str_make(big, sizeof(big)), &got);
        }
        assert_non_null(strstr(got.err.text, "32 KiB"));
        http1_response_free(response);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http1_response_valid_at_each_split_is_decoded),
        cmocka_unit_test(http1_response_invalid_at_each_split_is_refused),
        cmocka_unit_test(http1_response_prefix_is_incomplete),
        cmocka_unit_test(http1_response_find_ignores_case_and_trailers),
        cmocka_unit_test(http1_response_over_limits_is_refused),
    };
    return cmocka_run_group_tests_name("codec/http1/response", tests, NULL, NULL);
}
