/* The HTTP exchange, with requests sent and answers received in pieces of any size. */
#include "client/connection/http_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/connection/session_fixture.h"

static struct http_session *session;
static struct session *base;

static int start(void **state) {
    (void)state;
    session = http_session_new(8);
    assert_non_null(session);
    base = http_session_base(session);
    return 0;
}

static int stop(void **state) {
    (void)state;
    http_session_free(session);
    return 0;
}

static enum status answer(const char *text, size_t step, struct error *err) {
    enum status status;
    session_answer(base, text, strlen(text), step, &status, err);
    return status;
}

static void http_session_request_is_sent_in_any_pieces(void **state) {
    (void)state;
    static const struct piece pieces[] = {{NULL, 0},    {"GET ", 4}, {NULL, 0},
                                          {"/v2\r", 4}, {"\n", 1},   {NULL, 0}};
    for (size_t step = 1; step < 10; step++) {
        for (size_t max = 1; max < 4; max++) {
            char sent[16];
            http_session_begin(session, (struct http_message){pieces, 6});
            for (int twice = 0; twice < 2; twice++) {
                assert_int_equal(session_send(base, sent, step, max), 9);
                assert_memory_equal(sent, "GET /v2\r\n", 9);
                base->ops->restart(base);
            }
        }
    }
}

static void http_session_answer_is_parsed_at_any_split(void **state) {
    (void)state;
    static const char *const texts[] = {
        "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 3\r\nContent-Length: 8\r\n\r\n{ "
        "}abcde",
        "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n"
        "1\r\n{\r\n6\r\n }abcd\r\n1\r\ne\r\n0\r\n\r\n",
    };
    static const struct piece request = {"x", 1};
    for (size_t i = 0; i < 2; i++) {
        for (size_t step = 1; step < 100; step++) {
            struct error err = {0};
            http_session_begin(session, (struct http_message){&request, 1});
            assert_false(base->answered);
            base->ops->sent(base, 1);
            assert_int_equal(answer(texts[i], step, &err), ST_OK);
            assert_true(base->done && base->answered && base->reusable);
            assert_int_equal(http_session_status(session), 200);
            assert_true(str_is(http_session_body(session), "{ }abcde"));
            /* the bytes after the JSON are aligned */
            assert_int_equal(((uintptr_t)http_session_body(session).ptr + 3) % 64, 0);
        }
    }
}

struct end_row {
    const char *text;
    bool closed;
    enum status status;
    const char *says;
    bool keeps_alive;
};

static void check_end(const struct end_row *row, size_t step) {
    static const struct piece request = {"x", 1};
    struct error err = {0};
    http_session_begin(session, (struct http_message){&request, 1});
    base->ops->sent(base, 1);
    enum status status = answer(row->text, step, &err);
    if (status == ST_OK && row->closed) {
        status = base->ops->closed(base, &err);
    }
    if (status != row->status || (row->says && !strstr(err.text, row->says))) {
        fail_msg("%s in steps of %zu: %s", row->text, step, err.text);
    }
    if (status == ST_OK) {
        assert_true(base->done);
        assert_int_equal(base->reusable, row->keeps_alive);
    } else {
        assert_int_equal(err.status, status);
    }
}

static void http_session_each_end_gives_status(void **state) {
    (void)state;
    static const struct end_row rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, ST_OK, NULL, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false, ST_OK, NULL,
         false},
        {"HTTP/1.1 200 OK\r\n\r\nabc", true, ST_OK, NULL, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", false, ST_BODY_TOO_LARGE,
         "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", false,
         ST_BODY_TOO_LARGE, "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\n\r\nabcdefghi", false, ST_BODY_TOO_LARGE, "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabcdefghi\r\n", false,
         ST_BODY_TOO_LARGE, "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc", true, ST_BAD_ANSWER, "in the middle",
         false},
        {"", true, ST_IO, "without an answer", false},
        {"SSH-2.0\r\n", false, ST_BAD_ANSWER, "not HTTP/1.1", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (size_t step = 1; step < 100; step += 7) {
            check_end(&rows[i], step);
        }
    }
}

/* Bytes after an answer, and an answer before the request is sent, prevent reuse of the
 * connection. */
static void http_session_extra_bytes_prevent_reuse(void **state) {
    (void)state;
    static const struct piece pieces[] = {{"abc", 3}, {"def", 3}};
    static const struct http_message message = {pieces, 2};
    static const char early[] = "HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n";
    struct error err = {0};
    http_session_begin(session, message);
    base->ops->sent(base, 6);
    assert_int_equal(answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP", 100, &err), ST_OK);
    assert_true(base->done && !base->reusable);

    http_session_begin(session, message);
    base->ops->sent(base, 4);
    assert_int_equal(answer(early, 100, &err), ST_OK);
    assert_true(base->done && !base->reusable);

    struct iovec out[2];
    http_session_begin(session, message);
    base->ops->sent(base, 4);
    base->ops->drop_output(base);
    assert_int_equal(base->ops->output(base, out, 2), 0);
    assert_int_equal(answer(early, 100, &err), ST_OK);
    assert_true(base->done && !base->reusable);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http_session_request_is_sent_in_any_pieces),
        cmocka_unit_test(http_session_answer_is_parsed_at_any_split),
        cmocka_unit_test(http_session_each_end_gives_status),
        cmocka_unit_test(http_session_extra_bytes_prevent_reuse),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
