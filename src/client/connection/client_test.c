/* The client over real sockets, against a scripted server: on loopback, and on a Unix socket in
 * a directory of the test's own. No time is asserted. */
#include "client/connection/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/test_server.h"

#define OK_TEXT "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* Far longer than any test takes. */
#define TIMEOUT_NS UINT64_C(20000000000)

/* Returns: a client of a new server. */
static struct client *start(struct test_server *server, const struct script *scripts,
                            size_t n_scripts, uint64_t timeout_ns) {
    char url[URL_BYTES];
    test_server_start(server, url, scripts, n_scripts);
    struct client_options options = {.url = str_of(url),
                                     .connect_timeout_ns = TIMEOUT_NS,
                                     .timeout_ns = timeout_ns,
                                     .max_answer_bytes = 1000};
    struct client *client;
    struct error err;
    assert_int_equal(client_new(&options, &client, &err), ST_OK);
    return client;
}

static void stop(struct test_server *server, struct client *client) {
    client_free(client);
    test_server_stop(server);
}

static const struct piece request = {"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n", 29};

static enum status ask(struct client *client, struct error *err) {
    return client_exchange(client, (struct http_message){&request, 1}, 0, err);
}

static void client_connection_is_reused(void **state) {
    (void)state;
    static const struct script scripts[] = {{.texts = {OK_TEXT, OK_TEXT, OK_TEXT}}};
    struct test_server server;
    struct error err = {0};
    struct client *client = start(&server, scripts, 1, TIMEOUT_NS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(client, &err), ST_OK);
        assert_int_equal(http_session_status(client_http(client)), 200);
        assert_true(str_is(http_session_body(client_http(client)), "ok"));
    }
    stop(&server, client);
    assert_int_equal(server.n_requests, 3);
}

/* The server closed the connection between two requests, or when the second one arrived: it is
 * sent again. */
static void client_closed_reused_connection_is_retried(void **state) {
    (void)state;
    static const struct script scripts[] = {{.texts = {OK_TEXT, ""}}, {.texts = {OK_TEXT}}};
    struct test_server server;
    struct error err = {0};
    struct client *client = start(&server, scripts, 2, TIMEOUT_NS);
    assert_int_equal(ask(client, &err), ST_OK);
    if (ask(client, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    stop(&server, client);
    assert_int_equal(server.n_requests, 3);
}

/* After a byte of an answer the request may have been executed, so it is not sent again. */
static void client_closed_after_answer_byte_is_not_retried(void **state) {
    (void)state;
    static const struct script scripts[] = {{.texts = {OK_TEXT, "H"}}, {.texts = {OK_TEXT}}};
    struct test_server server;
    struct error err = {0};
    struct client *client = start(&server, scripts, 2, TIMEOUT_NS);
    assert_int_equal(ask(client, &err), ST_OK);
    assert_int_equal(ask(client, &err), ST_BAD_ANSWER);
    assert_non_null(strstr(err.text, "in the middle"));
    assert_int_equal(ask(client, &err), ST_OK);
    stop(&server, client);
    assert_int_equal(server.n_requests, 3);
}

/* The first request of a connection is not retried either. */
static void client_closed_new_connection_is_not_retried(void **state) {
    (void)state;
    static const struct script scripts[] = {{.texts = {""}}, {.texts = {OK_TEXT}}};
    struct test_server server;
    struct error err = {0};
    struct client *client = start(&server, scripts, 2, TIMEOUT_NS);
    assert_int_equal(ask(client, &err), ST_IO);
    assert_non_null(strstr(err.text, "without an answer"));
    stop(&server, client);
    assert_int_equal(server.n_requests, 1);
}

static void client_silent_server_times_out(void **state) {
    (void)state;
    static const struct script scripts[] = {{.texts = {"HTTP/1.1 200 OK\r\n"}, .hold = true}};
    struct test_server server;
    struct error err = {0};
    struct client *client = start(&server, scripts, 1, UINT64_C(50000000));
    assert_int_equal(ask(client, &err), ST_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "timed out"));
    stop(&server, client);
}

/* The server answers before it has read the request: the answer is read although the request is
 * not sent completely. */
static void client_answer_before_request_sent_is_read(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {"HTTP/1.1 413 x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"},
         .read_nothing = true}};
    struct test_server server;
    struct error err = {0};
    size_t n_bytes = 16 << 20;
    char *big = calloc(1, n_bytes);
    assert_non_null(big);
    struct piece pieces[] = {request, {big, n_bytes}};
    struct client *client = start(&server, scripts, 1, TIMEOUT_NS);
    struct http_message message = {pieces, 2};
    if (client_exchange(client, message, 0, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(http_session_status(client_http(client)), 413);
    assert_true(str_is(http_session_body(client_http(client)), "big"));
    stop(&server, client);
    free(big);
}

static void client_refused_connection_fails(void **state) {
    (void)state;
    struct test_server server;
    struct error err = {0};
    struct client *client = start(&server, NULL, 0, TIMEOUT_NS);
    assert_int_equal(pthread_join(server.thread, NULL), 0);
    close(server.listener);
    assert_int_equal(ask(client, &err), ST_IO);
    assert_non_null(strstr(err.text, "no connection to 127.0.0.1:"));
    client_free(client);
}

static void client_unix_socket_is_supported(void **state) {
    (void)state;
    static const struct script scripts[] = {{.texts = {OK_TEXT, OK_TEXT}}};
    char folder[] = "/tmp/sluice-client-XXXXXX", url[128];
    struct test_server server;
    struct error err = {0};
    assert_non_null(mkdtemp(folder));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", folder);
    test_server_start_at(&server, (const struct sockaddr *)&address, sizeof(address), scripts, 1);
    snprintf(url, sizeof(url), "http+unix:%s", address.sun_path);
    struct client_options options = {.url = str_of(url),
                                     .connect_timeout_ns = TIMEOUT_NS,
                                     .timeout_ns = TIMEOUT_NS,
                                     .max_answer_bytes = 1000};
    struct client *client;
    assert_int_equal(client_new(&options, &client, &err), ST_OK);
    assert_int_equal(ask(client, &err), ST_OK);
    assert_int_equal(ask(client, &err), ST_OK);
    stop(&server, client);
    unlink(address.sun_path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_connection_is_reused),
        cmocka_unit_test(client_closed_reused_connection_is_retried),
        cmocka_unit_test(client_closed_after_answer_byte_is_not_retried),
        cmocka_unit_test(client_closed_new_connection_is_not_retried),
        cmocka_unit_test(client_silent_server_times_out),
        cmocka_unit_test(client_answer_before_request_sent_is_read),
        cmocka_unit_test(client_refused_connection_fails),
        cmocka_unit_test(client_unix_socket_is_supported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
