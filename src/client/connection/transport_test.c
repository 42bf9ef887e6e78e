/* Calls over a transport that wants to read when it writes and to write when it reads, and over
 * transports that fail in every way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/connection/test_transport.h"
#include "client/test_expect.h"
#include "client/test_server.h"
#include "sluice/client_mip.h"

static struct peer peer;
static struct toy_peer toy_peer;
static struct toy toy;
static sluice_client *client;
static sluice_call *call;
static sluice_client_error error = {.size = sizeof(error)};

static void open_over(bool mip, const sluice_client_transport *transport,
                      uint64_t connect_timeout_ns) {
    peer_open(&peer, mip);
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = peer.url,
                                           .connect_timeout_ns = connect_timeout_ns,
                                           .timeout_ns = TEST_TIMEOUT_NS,
                                           .transport = transport};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
}

static void open_over_toy(bool mip, uint32_t seed) {
    sluice_client_transport transport = toy_transport(&toy);
    memset(&toy_peer, 0, sizeof(toy_peer));
    toy_peer.seed = seed;
    toy = (struct toy){.fd = -1, .seed = seed * 7};
    open_over(mip, &transport, 0);
    memset(&transport, 0x55, sizeof(transport)); /* the client has copied it */
}

static void close_client(void) {
    sluice_client_close(client);
    peer_close(&peer);
}

static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    test_expect(&error, is, status, says);
}

/* ---- two calls ------------------------------------------------------------------------------- */

static char picture[3000];
static const sluice_mip_item items[] = {
    {.size = sizeof(sluice_mip_item), .type = SLUICE_MIP_TEXT, .data = "hello", .n_bytes = 5},
    {.size = sizeof(sluice_mip_item),
     .type = SLUICE_MIP_IMAGE,
     .data = picture,
     .n_bytes = sizeof(picture)},
    {.size = sizeof(sluice_mip_item), .type = SLUICE_MIP_JSON, .data = "[1]", .n_bytes = 3}};

static void start(bool mip) {
    const int64_t dims[] = {700};
    const sluice_tensor input = {.size = sizeof(sluice_tensor),
                                 .name = "x",
                                 .datatype = SLUICE_UINT8,
                                 .dims = dims,
                                 .rank = 1,
                                 .data = picture,
                                 .n_bytes = 700};
    const sluice_infer_request http = {
        .size = sizeof(http), .model = "m", .inputs = &input, .n_inputs = 1};
    const sluice_mip_request request = {
        .size = sizeof(request), .items = items, .n_inputs = 3, .batch = 1};
    expect(mip ? sluice_client_start_mip_infer(client, &request, NULL, &call, &error)
               : sluice_client_start_infer(client, &http, NULL, &call, &error),
           SLUICE_CLIENT_OK, "");
}

#define JSON                                                                                       \
    "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"UINT8\",\"shape\":[3],\"data\":[1,2,3]}]}"
static const char http_answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 75\r\n\r\n" JSON "   ";
static const char mip_answer[] = "\0\2\1\0\0\0\0\x0e\3\1\0\1\0\0\0\1\0\0\0\2hi";

static size_t answer_of(bool mip, const char **out) {
    *out = mip ? mip_answer : http_answer;
    return mip ? sizeof(mip_answer) - 1 : sizeof(http_answer) - 1;
}

static void take(bool mip) {
    sluice_mip_item item = {.size = sizeof(item)};
    sluice_tensor output = {.size = sizeof(output)};
    if (mip) {
        assert_int_equal(sluice_call_mip_item(call, 0, &item), SLUICE_CLIENT_OK);
        assert_memory_equal(item.data, "hi", 2);
    } else {
        assert_int_equal(sluice_call_output(call, 0, &output), SLUICE_CLIENT_OK);
        assert_memory_equal(output.data, "\1\2\3", 3);
    }
    sluice_call_free(call);
}

/* Captures the request of a call over a socket. Returns: its size. */
static size_t request_of(bool mip, char *out) {
    open_over(mip, NULL, 0);
    start(mip);
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "");
    assert_true(peer_accept(&peer));
    size_t n = peer_read(&peer);
    memcpy(out, peer.in, n);
    close_client();
    return n;
}

/* One call over the toy transport, stepped only when its descriptor is ready. */
static void run(bool mip, const char *request, size_t n_request) {
    const char *answer;
    size_t n_answer = answer_of(mip, &answer);
    bool answered = false;
    toy_peer.n_in = 0;
    start(mip);
    for (;; toy.calm = false) {
        bool ready = client_is_ready(client, 0);
        if (ready) {
            sluice_client_step(client);
        }
        sluice_client_status status = sluice_call_status(call, &error);
        if (status != SLUICE_CLIENT_PENDING) {
            expect(status, SLUICE_CLIENT_OK, "");
            break;
        }
        (void)peer_accept(&peer);
        bool moved = peer.fd >= 0 && toy_peer_pump(&toy_peer, &peer);
        if (!answered && toy_peer.n_in == n_request) {
            toy_peer_send(&toy_peer, &peer, answer, n_answer);
            answered = true;
        } else if (!ready && !moved) {
            fail_msg("it waits for what never comes");
        }
    }
    assert_int_equal(toy_peer.n_in, n_request);
    assert_memory_equal(toy_peer.in, request, n_request);
    take(mip);
    toy.calm = true; /* the check of the idle connection sees WANT_READ */
}

static void transport_random_wants_complete_calls(void **state) {
    (void)state;
    static char request[PEER_BYTES];
    for (size_t i = 0; i < sizeof(picture); i++) {
        picture[i] = (char)(i * 31 >> 2);
    }
    for (int mip = 0; mip < 2; mip++) {
        size_t n_request = request_of(mip, request);
        for (uint32_t seed = 1; seed <= 10; seed++) {
            open_over_toy(mip, seed);
            run(mip, request, n_request);
            run(mip, request, n_request);
            assert_int_equal(toy.n_starts, 1);
            close_client();
            assert_int_equal(toy.n_stops, 1);
        }
    }
}

/* Between calls, bytes of the transport itself keep the connection; data bytes do not. */
static void transport_own_bytes_keep_connection(void **state) {
    (void)state;
    static char request[PEER_BYTES];
    size_t n_request = request_of(true, request);
    for (uint32_t seed = 1; seed <= 10; seed++) {
        open_over_toy(true, seed);
        run(true, request, n_request);
        toy_peer_agree(&toy_peer, &peer);
        run(true, request, n_request);
        assert_int_equal(toy.n_starts, 1);
        peer_send(&peer, "Dx", 2);
        run(true, request, n_request);
        assert_int_equal(toy.n_starts, 2);
        peer_send(&peer, "E", 1);
        run(true, request, n_request);
        assert_int_equal(toy.n_starts, 3);
        peer_disconnect(&peer); /* when the next request arrives */
        run(true, request, n_request);
        assert_int_equal(toy.n_starts, 4);
        assert_int_equal(toy.n_stops, 3);
        close_client();
        assert_int_equal(toy.n_stops, 4);
    }
}

/* The handshake is part of connecting. */
static void transport_silent_handshake_times_out(void **state) {
    (void)state;
    sluice_client_transport transport = toy_transport(&toy);
    toy = (struct toy){.fd = -1, .seed = 1};
    open_over(true, &transport, 20000000);
    start(true);
    expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_TIMEOUT,
           "timed out connecting to");
    assert_int_equal(toy.n_stops, 1);
    close_client();
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Moves bytes like a socket, except as its fields define. */
struct lame {
    int fd;
    int32_t start;
    int64_t read, write; /* result of the call with this number; 0: as a socket */
    int at_read, at_write;
    const char *reason;
    int n_reads, n_writes, n_starts, n_stops;
    bool failed; /* only stop and reason may be called now */
};

static int32_t lame_start(void *context, int fd, const char *host) {
    struct lame *lame = context;
    (void)host;
    lame->fd = fd;
    lame->n_starts++;
    return lame->start;
}

static int64_t lame_moved(ssize_t n, int64_t wanted) {
    return n >= 0 ? n : errno == EAGAIN ? wanted : SLUICE_TRANSPORT_FAILED;
}

static int64_t lame_read(void *context, void *data, size_t n_bytes) {
    struct lame *lame = context;
    assert_false(lame->failed);
    if (++lame->n_reads == lame->at_read) {
        lame->failed = true;
        return lame->read;
    }
    return lame_moved(recv(lame->fd, data, n_bytes, 0), SLUICE_TRANSPORT_WANT_READ);
}

static int64_t lame_write(void *context, const void *data, size_t n_bytes) {
    struct lame *lame = context;
    assert_false(lame->failed);
    if (++lame->n_writes == lame->at_write) {
        lame->failed = true;
        return lame->write;
    }
    return lame_moved(send(lame->fd, data, n_bytes < 100 ? n_bytes : 100, MSG_NOSIGNAL),
                      SLUICE_TRANSPORT_WANT_WRITE);
}

static void lame_stop(void *context) {
    ((struct lame *)context)->n_stops++;
}

static const char *lame_reason(void *context) {
    return ((struct lame *)context)->reason;
}

static sluice_client_transport lame_transport(struct lame *lame) {
    return (sluice_client_transport){.size = sizeof(sluice_client_transport),
                                     .context = lame,
                                     .start = lame_start,
                                     .read = lame_read,
                                     .write = lame_write,
                                     .stop = lame_stop,
                                     .reason = lame_reason};
}

static void transport_each_failure_gives_reason(void **state) {
    (void)state;
    static const struct {
        struct lame lame;
        sluice_client_status status;
        const char *says[2];
    } rows[] = {
        {{.start = -3, .reason = "no weather"},
         SLUICE_CLIENT_TLS,
         {"the transport did not start", "no weather"}},
        {{.start = 7}, SLUICE_CLIENT_TLS, {"did not start", "no reason"}},
        {{.write = -3, .at_write = 1, .reason = "bad name"},
         SLUICE_CLIENT_TLS,
         {"the handshake with /tmp/", "bad name"}},
        {{.write = -3, .at_write = 2, .reason = "bad luck"},
         SLUICE_CLIENT_CLOSED,
         {"sending to /tmp/", "bad luck"}},
        {{.write = 0, .at_write = 2}, SLUICE_CLIENT_CLOSED, {"sending to", "no reason"}},
        {{.write = -77, .at_write = 2}, SLUICE_CLIENT_CLOSED, {"sending to", "no reason"}},
        {{.write = 1 << 20, .at_write = 2}, SLUICE_CLIENT_CLOSED, {"reported 1048576 of", "bytes"}},
        {{.read = -3, .at_read = 1, .reason = "cold"},
         SLUICE_CLIENT_CLOSED,
         {"receiving from /tmp/", "cold"}},
        {{.read = -3, .at_read = 1}, SLUICE_CLIENT_CLOSED, {"receiving from", "no reason"}},
        {{.read = INT64_MIN, .at_read = 1}, SLUICE_CLIENT_CLOSED, {"receiving", "no reason"}},
        {{.read = 1 << 20, .at_read = 1}, SLUICE_CLIENT_CLOSED, {"reported 1048576 of", "bytes"}},
        {{.read = 0, .at_read = 1}, SLUICE_CLIENT_CLOSED, {"without an answer", ""}},
        /* the first read finds nothing, the second the header */
        {{.read = -3, .at_read = 3, .reason = "rain"},
         SLUICE_CLIENT_PROTOCOL,
         {"receiving", "rain"}},
        {{.read = 0, .at_read = 3}, SLUICE_CLIENT_PROTOCOL, {"in the middle of its answer", ""}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct lame lame = rows[i].lame;
        sluice_client_transport transport = lame_transport(&lame);
        transport.reason = lame.reason || i % 2 == 0 ? transport.reason : NULL;
        open_over(true, &transport, 0);
        start(true);
        sluice_client_status status = client_step_until_blocked(client, call, &error);
        if (status == SLUICE_CLIENT_PENDING) {
            assert_true(peer_accept(&peer));
            peer_send(&peer, mip_answer, 15);
            status = client_run_to_end(client, call, &error);
        }
        expect(status, rows[i].status, rows[i].says[0]);
        expect(status, rows[i].status, rows[i].says[1]);
        assert_int_equal(lame.n_starts, 1);
        assert_int_equal(lame.n_stops, lame.start == 0);
        close_client();
        assert_int_equal(lame.n_stops, lame.start == 0);
    }
}

/* An incomplete transport is rejected before anything is done. */
static void transport_missing_function_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct lame lame = {0};
        sluice_client_transport transport = lame_transport(&lame);
        transport.start = i == 0 ? NULL : transport.start;
        transport.read = i == 1 ? NULL : transport.read;
        transport.write = i == 2 ? NULL : transport.write;
        transport.size = i == 3   ? 0
                         : i == 4 ? offsetof(sluice_client_transport, write)
                                  : sizeof(transport);
        const sluice_client_options options = {
            .size = sizeof(options), .url = "https://127.0.0.1:1", .transport = &transport};
        expect(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID,
               i == 3 ? "size" : "transport");
        assert_null(client);
    }
}

/* https, with a plain socket in place of TLS, and without `stop`. */
static void transport_https_url_uses_transport(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}}};
    struct test_server server;
    char url[URL_BYTES], secure[URL_BYTES + 1];
    struct lame lame = {0};
    sluice_client_transport transport = lame_transport(&lame);
    transport.stop = NULL;
    test_server_start(&server, url, scripts, 1);
    snprintf(secure, sizeof(secure), "https%s", url + strlen("http"));
    const sluice_client_options options = {
        .size = sizeof(options), .url = secure, .transport = &transport};
    int32_t yes = 0;
    expect(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_client_is_live(client, NULL, &yes, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(yes, 1);
    assert_int_equal(lame.n_starts, 1);
    sluice_client_close(client);
    test_server_stop(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transport_random_wants_complete_calls),
        cmocka_unit_test(transport_own_bytes_keep_connection),
        cmocka_unit_test(transport_silent_handshake_times_out),
        cmocka_unit_test(transport_each_failure_gives_reason),
        cmocka_unit_test(transport_missing_function_is_refused),
        cmocka_unit_test(transport_https_url_uses_transport),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
