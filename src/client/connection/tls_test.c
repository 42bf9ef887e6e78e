/* The options of TLS, and a server whose bytes are cut off or changed anywhere. Other handshakes
 * are tests/interop/client's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/connection/tls.h"
#include "net/transport/tls/self_signed.h"
#include "net/transport/tls/session.h"

static void tls_urls_need_no_options(void **state) {
    static const char *const urls[] = {"https://127.0.0.1:1", "grpcs://x:1"};
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        const sluice_client_options options = {.size = sizeof(options), .url = urls[i]};
        sluice_client *client;
        assert_int_equal(sluice_client_open(&options, &client, NULL), SLUICE_CLIENT_OK);
        sluice_client_close(client);
    }
}

/* Files are read, and options without effect refused, before anything is sent. */
static void tls_bad_options_are_invalid(void **state) {
    (void)state;
    static const sluice_client_transport transport = {.size = sizeof(transport)};
    static const struct {
        const char *url;
        sluice_tls_options tls;
        const sluice_client_transport *transport;
        const char *says;
    } rows[] = {
        {"https://127.0.0.1:1", {0}, NULL, "sluice_tls_options was given without its size"},
        {"http://127.0.0.1:1", {.size = sizeof(rows[0].tls)}, NULL, "are for https://"},
        {"tcp://127.0.0.1:1", {.size = sizeof(rows[0].tls)}, NULL, "are for https://"},
        {"https://127.0.0.1:1", {.size = sizeof(rows[0].tls)}, &transport, "without a transport"},
        {"https://127.0.0.1:1",
         {.size = sizeof(rows[0].tls), .ca_file = "/nowhere/at/all"},
         NULL,
         "ca_file /nowhere/at/all: expected certificates in PEM: No such file"},
        {"https://127.0.0.1:1",
         {.size = sizeof(rows[0].tls), .cert_file = "/nowhere/at/all"},
         NULL,
         "cert_file /nowhere/at/all: expected a certificate in PEM"},
        {"https://127.0.0.1:1",
         {.size = sizeof(rows[0].tls), .key_file = "/nowhere/at/all"},
         NULL,
         "key_file needs cert_file"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const sluice_client_options options = {.size = sizeof(options),
                                               .url = rows[i].url,
                                               .tls = &rows[i].tls,
                                               .transport = rows[i].transport};
        sluice_client *client;
        sluice_client_error error = {.size = sizeof(error)};
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
        assert_null(client);
        if (!strstr(error.text, rows[i].says)) {
            fail_msg("%zu: %s", i, error.text);
        }
    }
}

/* ---- a server that lies ---------------------------------------------------------------------- */

enum { N_RECORDS = 3, STEP = 31, IN_BYTES = 1 << 15, WIRE_BYTES = 1 << 17 };

static const char REQUEST[] = "a request", RECORD[] = "a part of the answer";

struct tls_peer {
    struct tls_session session;
    int fd;
    bool answered, ended;
    size_t cut, change; /* the bytes from `cut` on are not sent, that at `change` is another one */
    size_t piece;       /* at most so many bytes at once */
    size_t n_in, n_wire, n_sent;
    char in[IN_BYTES], wire[WIRE_BYTES];
};

/* Reads what came, shakes hands, and answers the request. */
static void peer_work(struct tls_peer *peer, struct tls_io *io) {
    char got[sizeof(REQUEST)];
    size_t n_got;
    enum tls_failure why;
    struct error err;
    if (tls_session_handshake(&peer->session, io, &why, &err) != TLS_DONE ||
        tls_session_read(&peer->session, io, got, sizeof(got), &n_got, &err) == TLS_FAILED ||
        n_got == 0) {
        return;
    }
    assert_int_equal(n_got, sizeof(REQUEST) - 1);
    assert_memory_equal(got, REQUEST, n_got);
    for (int i = 0; i < N_RECORDS; i++) {
        assert_int_equal(tls_session_write(&peer->session, io, STR(RECORD)), TLS_DONE);
    }
    tls_session_send_close_notify(&peer->session, io);
    peer->answered = true;
}

/* Returns: whether a byte moved. */
static bool peer_step(struct tls_peer *peer) {
    ssize_t n = recv(peer->fd, peer->in + peer->n_in, IN_BYTES - peer->n_in, MSG_DONTWAIT);
    peer->n_in += n > 0 ? (size_t)n : 0;
    struct tls_io io = {.in = str_make(peer->in, peer->n_in),
                        .out = peer->wire + peer->n_wire,
                        .out_cap = WIRE_BYTES - peer->n_wire};
    if (!peer->answered) {
        peer_work(peer, &io);
    }
    if (io.in.len > 0) { /* else its ptr may be NULL */
        memmove(peer->in, io.in.ptr, io.in.len);
    }
    peer->n_in = io.in.len;
    if (peer->change >= peer->n_wire && peer->change < peer->n_wire + io.out_len) {
        peer->wire[peer->change] ^= 4;
    }
    peer->n_wire += io.out_len;
    size_t until = peer->n_wire < peer->cut ? peer->n_wire : peer->cut;
    size_t n_now = until - peer->n_sent < peer->piece ? until - peer->n_sent : peer->piece;
    if (n_now > 0) {
        assert_int_equal(send(peer->fd, peer->wire + peer->n_sent, n_now, 0), n_now);
        peer->n_sent += n_now;
    }
    return n > 0 || n_now > 0;
}

/* Sends a request and reads the answer. Returns: what the last read or write did; *n: the bytes of
 * the answer, which are the right ones in any case. */
static int64_t ask(struct tls_peer *peer, const sluice_client_transport *transport, size_t *n) {
    bool asked = false;
    for (*n = 0;;) {
        char got[64];
        int64_t moved = asked ? transport->read(transport->context, got, sizeof(got))
                              : transport->write(transport->context, REQUEST, sizeof(REQUEST) - 1);
        if (moved == 0 || moved == SLUICE_TRANSPORT_FAILED) {
            assert_true(asked || moved != 0);
            return moved;
        }
        if (moved > 0 && !asked) {
            assert_int_equal(moved, sizeof(REQUEST) - 1);
            asked = true;
        } else if (moved > 0) {
            for (int64_t i = 0; i < moved; i++) {
                assert_int_equal(got[i], RECORD[(*n)++ % (sizeof(RECORD) - 1)]);
            }
        } else if (!peer_step(peer)) {
            assert_false(peer->ended); /* the end is an end for the client, too */
            peer->ended = true;
            shutdown(peer->fd, SHUT_WR);
        }
    }
}

/* A connection to a server as `how` says. Returns: the bytes that the server had to send. */
static size_t connect_and_ask(struct tls_context *context, const struct client_tls *tls,
                              const struct tls_peer *how) {
    static struct tls_peer peer;
    sluice_client_transport transport;
    size_t n_answer, n_all = N_RECORDS * (sizeof(RECORD) - 1);
    int fds[2];
    peer = *how;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    peer.fd = fds[1];
    assert_true(tls_session_init(&peer.session, tls_context_ref(context), STR("\x08http/1.1")));
    void *made = client_tls_transport_new(tls, &transport);
    assert_non_null(made);
    assert_int_equal(transport.start(made, fds[0], "localhost"), 0);
    int64_t result = ask(&peer, &transport, &n_answer);
    if (result == 0) { /* only the server's own end is an end, and nothing of the answer is lost */
        assert_int_equal(n_answer, n_all);
        assert_true(peer.n_sent == peer.n_wire);
    } else {
        const char *reason = transport.reason(made);
        assert_true(reason && strlen(reason) > 5);
        assert_true(n_answer <= n_all);
    }
    if (peer.change == SIZE_MAX) {
        assert_int_equal(result, peer.cut == SIZE_MAX ? 0 : SLUICE_TRANSPORT_FAILED);
    }
    transport.stop(made);
    client_tls_transport_free(made);
    tls_session_fini(&peer.session);
    close(fds[0]);
    close(fds[1]);
    return peer.n_wire;
}

/* The answer is whole, or the call fails with a reason: never a shorter or another one. */
static void tls_answer_cut_or_changed_anywhere_fails(void **state) {
    (void)state;
    const struct client_tls_options options = {.files.insecure = true};
    struct client_tls *tls;
    struct tls_context *context;
    struct error err;
    struct str pem;
    assert_int_equal(tls_self_signed_new(time(NULL), &pem, &err), ST_OK);
    const struct tls_texts texts = {.cert = {"cert", pem}, .key = {"key", pem}};
    assert_int_equal(tls_context_new(&texts, &context, &err), ST_OK);
    assert_int_equal(client_tls_new(&options, &tls, &err), ST_OK);
    struct tls_peer how = {.cut = SIZE_MAX, .change = SIZE_MAX, .piece = SIZE_MAX};
    size_t n = connect_and_ask(context, tls, &how);
    how.piece = 1;
    connect_and_ask(context, tls, &how);
    how.piece = 100;
    for (size_t i = 0; i < n - 100; i += STEP) { /* signatures have other lengths each time */
        how.cut = i;
        how.change = SIZE_MAX;
        connect_and_ask(context, tls, &how);
        how.cut = SIZE_MAX;
        how.change = i;
        connect_and_ask(context, tls, &how);
    }
    client_tls_free(tls);
    tls_context_unref(context);
    tls_self_signed_free(&pem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tls_answer_cut_or_changed_anywhere_fails),
        cmocka_unit_test(tls_urls_need_no_options),
        cmocka_unit_test(tls_bad_options_are_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
