/* The exchange: what is sent whatever the pieces it leaves in, and what is read whatever the pieces
 * it comes in. */
#include "client/client_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Gives the session `text` in pieces of at most `step` bytes. Returns: the bytes that were not
 * wanted. */
static size_t answer(struct client_session *session, const char *text, size_t step,
                     enum status *status, struct error *err) {
    size_t left = strlen(text);
    *status = ST_OK;
    while (left > 0 && *status == ST_OK && !client_session_is_done(session)) {
        char *at;
        size_t n;
        client_session_input(session, &at, &n);
        assert_true(n > 0);
        n = n < left ? n : left;
        n = n < step ? n : step;
        memcpy(at, text, n);
        text += n;
        left -= n;
        *status = client_session_received(session, n, err);
    }
    return left;
}

static void sending(void **state) {
    (void)state;
    static const struct piece pieces[] = {{"GET ", 4}, {NULL, 0}, {"/v2\r", 4}, {"\n", 1}};
    for (size_t step = 1; step < 10; step++) {
        for (size_t max = 1; max < 4; max++) {
            struct client_session *session = client_session_new(1000);
            char sent[16];
            size_t n_sent = 0, n;
            struct iovec out[4];
            client_session_begin(session, (struct client_message){pieces, 4});
            while ((n = client_session_output(session, out, max)) > 0) {
                assert_true(n <= max && out[0].iov_len > 0);
                size_t take = out[0].iov_len < step ? out[0].iov_len : step;
                memcpy(sent + n_sent, out[0].iov_base, take);
                n_sent += take;
                client_session_sent(session, take);
            }
            assert_int_equal(n_sent, 9);
            assert_memory_equal(sent, "GET /v2\r\n", 9);
            client_session_free(session);
        }
    }
}

static void reading(void **state) {
    (void)state;
    static const char *const texts[] = {
        "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 3\r\nContent-Length: 8\r\n\r\n{ "
        "}abcde",
        "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n"
        "1\r\n{\r\n6\r\n }abcd\r\n1\r\ne\r\n0\r\n\r\n",
    };
    static const struct piece request = {"x", 1};
    struct client_session *session = client_session_new(8);
    for (size_t i = 0; i < 2; i++) {
        for (size_t step = 1; step < 100; step++) {
            enum status status;
            struct error err = {0};
            client_session_begin(session, (struct client_message){&request, 1});
            assert_true(client_session_is_unanswered(session));
            client_session_sent(session, 1);
            assert_int_equal(answer(session, texts[i], step, &status, &err), 0);
            assert_int_equal(status, ST_OK);
            assert_true(client_session_is_done(session));
            assert_false(client_session_is_unanswered(session));
            assert_true(client_session_keeps_alive(session));
            assert_int_equal(client_session_status(session), 200);
            assert_true(str_is(client_session_body(session), "{ }abcde"));
            /* what is behind the JSON lies where a tensor wants to */
            assert_int_equal(((uintptr_t)client_session_body(session).ptr + 3) % 64, 0);
        }
    }
    client_session_free(session);
}

struct end_row {
    const char *text;
    bool closed;
    enum status status;
    const char *says;
    bool keeps_alive;
};

static void check_end(struct client_session *session, const struct end_row *row, size_t step) {
    static const struct piece request = {"x", 1};
    enum status status;
    struct error err = {0};
    client_session_begin(session, (struct client_message){&request, 1});
    client_session_sent(session, 1);
    answer(session, row->text, step, &status, &err);
    if (status == ST_OK && row->closed) {
        status = client_session_closed(session, &err);
    }
    if (status != row->status || (row->says && !strstr(err.text, row->says))) {
        fail_msg("%s in steps of %zu: %s", row->text, step, err.text);
    }
    if (status == ST_OK) {
        assert_int_equal(client_session_keeps_alive(session), row->keeps_alive);
    }
}

static void endings(void **state) {
    (void)state;
    static const struct end_row rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, ST_OK, NULL, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false, ST_OK, NULL,
         false},
        {"HTTP/1.1 200 OK\r\n\r\nabc", true, ST_OK, NULL, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", false, ST_BAD_ANSWER, "max_answer_bytes",
         false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", false, ST_BAD_ANSWER,
         "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\n\r\nabcdefghi", false, ST_BAD_ANSWER, "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabcdefghi\r\n", false,
         ST_BAD_ANSWER, "max_answer_bytes", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc", true, ST_BAD_ANSWER, "in the middle",
         false},
        {"", true, ST_BAD_ANSWER, "without an answer", false},
        {"SSH-2.0\r\n", false, ST_BAD_ANSWER, "not HTTP/1.1", false},
    };
    struct client_session *session = client_session_new(8);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (size_t step = 1; step < 100; step += 7) {
            check_end(session, &rows[i], step);
        }
    }
    client_session_free(session);
}

/* Bytes behind an answer, and an answer before the request has left, end the connection. */
static void not_reusable(void **state) {
    (void)state;
    static const struct piece pieces[] = {{"abc", 3}, {"def", 3}};
    enum status status;
    struct error err = {0};
    struct client_session *session = client_session_new(8);
    client_session_begin(session, (struct client_message){pieces, 2});
    client_session_sent(session, 6);
    answer(session, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP", 100, &status, &err);
    assert_true(client_session_is_done(session));
    assert_false(client_session_keeps_alive(session));

    client_session_begin(session, (struct client_message){pieces, 2});
    client_session_sent(session, 4);
    answer(session, "HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n", 100, &status, &err);
    assert_true(client_session_is_done(session));
    assert_false(client_session_keeps_alive(session));

    struct iovec out[2];
    client_session_begin(session, (struct client_message){pieces, 2});
    client_session_sent(session, 4);
    client_session_drop_output(session);
    assert_int_equal(client_session_output(session, out, 2), 0);
    answer(session, "HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n", 100, &status, &err);
    assert_false(client_session_keeps_alive(session));
    client_session_free(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sending),
        cmocka_unit_test(reading),
        cmocka_unit_test(endings),
        cmocka_unit_test(not_reusable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
