/* The bytes of a request as a server receives them, and requests that are refused. */
#include "net/client/http_fetch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/http_fetch_fixture.h"

/* ---- requests as sent ------------------------------------------------------------------------ */

/* A server of one connection that reads a head and that many body bytes and records them. */
struct listener {
    int fd;
    size_t n_body;
    const char *says;
    char seen[2000];
    pthread_t thread;
};

static void *listen_to(void *arg) {
    struct listener *self = arg;
    int fd = accept(self->fd, NULL, NULL);
    assert_true(fd >= 0);
    size_t n = read_head(fd, self->seen, sizeof(self->seen) - 1 - self->n_body);
    assert_int_equal(test_read(fd, self->seen + n, self->n_body), self->n_body);
    test_try_send(fd, self->says, strlen(self->says));
    close(fd);
    return NULL;
}

static const char *const ACCEPT[] = {"Accept: application/json", "X-Trace: a"};

static const struct sent_row {
    struct http_fetch_request ask;
    const char *begin, *end;
    const char *with[4], *without[3];
} SENT[] = {
    {{.method = NULL}, "GET /x HTTP/1.1\r\n", "\r\n\r\n", {"Accept: */*\r\n"}, {"Content"}},
    {{.fields = ACCEPT, .n_fields = 2, .bearer = "s3cret"},
     "GET /x HTTP/1.1\r\n",
     "\r\n\r\n",
     {"Accept: application/json\r\n", "X-Trace: a\r\n", "Authorization: Bearer s3cret\r\n"},
     {"*/*", "Content"}},
    {{.method = "POST", .body = {"hello", 5}, .content_type = "text/plain"},
     "POST /x HTTP/1.1\r\n",
     "\r\n\r\nhello",
     {"Content-Length: 5\r\n", "Content-Type: text/plain\r\n"},
     {"Expect", "form"}},
    {{.method = "PUT", .body = {"a\0b", 3}, .content_type = "application/json"},
     "PUT /x HTTP/1.1\r\n",
     NULL, /* contains a NUL */
     {"Content-Length: 3\r\n", "Content-Type: application/json\r\n"},
     {"Expect"}},
    {{.method = "PATCH", .body = {"{}", 2}, .keepalive_s = 30},
     "PATCH /x HTTP/1.1\r\n",
     "\r\n\r\n{}",
     {"Content-Length: 2\r\n"},
     {"Content-Type", "Expect"}},
    {{.method = "POST", .body = {"", 0}},
     "POST /x HTTP/1.1\r\n",
     "\r\n\r\n",
     {"Content-Length: 0\r\n"},
     {"Content-Type"}},
    {{.method = "DELETE"}, "DELETE /x HTTP/1.1\r\n", "\r\n\r\n", {"Host: "}, {"Content"}},
};

static void check_sent(const struct sent_row *row, const char *seen) {
    assert_memory_equal(seen, row->begin, strlen(row->begin));
    for (size_t i = 0; i < 4 && row->with[i]; i++) {
        assert_non_null(strstr(seen, row->with[i]));
    }
    for (size_t i = 0; i < 3 && row->without[i]; i++) {
        assert_null(strstr(seen, row->without[i]));
    }
    if (row->end) {
        size_t n = strlen(seen), n_end = strlen(row->end);
        assert_true(n >= n_end);
        assert_string_equal(seen + n - n_end, row->end);
    }
}

/* One fetcher for all rows: no option of a request leaks into the next. */
static void request_bytes_match_table(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    struct http_fetch_request plain = rig.ask;
    for (size_t i = 0; i < 2 * sizeof(SENT) / sizeof(SENT[0]); i++) {
        const struct sent_row *row = &SENT[i / 2]; /* each row is also preceded by itself */
        struct listener self = {.n_body = row->ask.body.len,
                                .says = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n"
                                        "Content-Length: 2\r\n\r\nok"};
        struct address address;
        self.fd = listen_at(&address);
        assert_int_equal(pthread_create(&self.thread, NULL, listen_to, &self), 0);
        rig.ask = row->ask;
        rig.ask.timeout_ns = plain.timeout_ns;
        rig.ask.max_body_size = plain.max_body_size;
        const struct got *got = fetch(&rig, &address, "/x");
        pthread_join(self.thread, NULL);
        close(self.fd);
        assert_int_equal(got->status, ST_OK);
        assert_int_equal(got->http, 429);
        assert_int_equal(got->retry_after_s, 7);
        assert_string_equal(got->body, "ok");
        check_sent(row, self.seen);
    }
    rig_fini(&rig);
}

static void request_body_is_echoed(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    static char text[TEST_ANSWER_BYTES];
    memset(text, 'z', sizeof(text));
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    rig.ask.max_body_size = sizeof(text);
    rig.ask.method = "POST";
    rig.ask.body = str_make(text, sizeof(text));
    for (int i = 0; i < 3; i++) { /* on one connection, too */
        const struct got *got = fetch(&rig, &server.host.bound, "/echo");
        assert_int_equal(got->status, ST_OK);
        assert_int_equal(got->http, 200);
        assert_int_equal(got->n_body, sizeof(text));
    }
    rig.ask.method = NULL;
    rig.ask.body = (struct str){NULL, 0};
    assert_string_equal(fetch(&rig, &server.host.bound, "/hello")->body, "hello");
    rig_fini(&rig);
    test_server_stop(&server);
}

static const char *const BROKEN_FIELD[] = {"X-A: b\r\nX-C: d"};

static void step_refused(struct rig *rig) {
    struct http_fetch_request ask = rig->ask;
    struct http_fetch *out = NULL;
    struct error err;
    ask.url = "http://127.0.0.1:1/";
    ask.done = on_done;
    ask.user = &rig->got[0];
    assert_int_equal(http_fetch_start(rig->fetcher, &ask, &out, &err), ST_BAD_CONFIG);
    assert_null(out);
    assert_non_null(strstr(err.text, "without control characters, got 0x0"));
    assert_null(strstr(err.text, "s3cret"));
    end(rig);
}

/* A line break in a token or a field would inject another field. */
static void request_with_control_character_is_refused(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    rig.ask.bearer = "s3cret\nX: y";
    post(&rig, step_refused);
    rig.ask.bearer = NULL;
    rig.ask.fields = BROKEN_FIELD;
    rig.ask.n_fields = 1;
    post(&rig, step_refused);
    rig.ask.n_fields = 0;
    rig.ask.body = STR("x");
    rig.ask.content_type = "text/plain\n";
    post(&rig, step_refused);
    rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_bytes_match_table),
        cmocka_unit_test(request_body_is_echoed),
        cmocka_unit_test(request_with_control_character_is_refused),
    };
    return cmocka_run_group_tests_name("net/client/http_fetch_request", tests, NULL, NULL);
}
