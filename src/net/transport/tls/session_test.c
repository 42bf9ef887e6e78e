/* Both sides of TLS in memory: handshakes and data at every split and with small buffers, accepted
 * and refused clients, and the errors. */
#include "net/transport/tls/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <openssl/err.h>

#include "net/transport/tls/tls_fixture.h"

enum { WIRE_BYTES = 1 << 17 };

static const char HTTP1[] = "\x08http/1.1\x08http/1.0", H2[] = "\x02h2";

static struct test_identity server_id, client_id, other_id;

/* Both sides and the bytes between them. */
struct pair {
    struct tls_session session;
    SSL *client;
    enum tls_result result; /* of the session's last step */
    enum tls_failure why;
    struct error err;
    int alert;        /* last one that the client got; -1: none */
    bool shaken;      /* the session's handshake is complete */
    size_t out_bytes; /* output capacity of the session per step */
    size_t in_bytes;  /* ... and input bytes */
    char out[WIRE_BYTES];
};

/* Records the alerts that the client gets. */
static void on_info(const SSL *ssl, int where, int value) {
    if (where == SSL_CB_READ_ALERT) {
        ((struct pair *)SSL_get_app_data(ssl))->alert = value & 0xff;
    }
}

static void pair_init(struct pair *pair, struct tls_context *context, SSL_CTX *client,
                      struct str alpn) {
    *pair = (struct pair){.alert = -1, .out_bytes = WIRE_BYTES, .in_bytes = SIZE_MAX};
    assert_true(tls_session_init(&pair->session, context, alpn));
    pair->client = test_client_new(client);
    SSL_set_app_data(pair->client, pair);
    SSL_set_info_callback(pair->client, on_info);
}

static void pair_fini(struct pair *pair) {
    tls_session_fini(&pair->session);
    /* Else OpenSSL would not resume a session that ended without close_notify. */
    SSL_set_shutdown(pair->client, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(pair->client);
}

/* Delivers the session's output to the client. */
static void deliver(struct pair *pair, struct tls_io *io) {
    if (io->out_len > 0) {
        BIO_write(SSL_get_rbio(pair->client), io->out, (int)io->out_len);
        io->out_len = 0;
    }
}

/* One step of the session's handshake with these bytes. */
static void shake(struct pair *pair, struct str in) {
    struct tls_io io = {.in = in, .out = pair->out, .out_cap = pair->out_bytes};
    do {
        pair->result = tls_session_handshake(&pair->session, &io, &pair->why, &pair->err);
        deliver(pair, &io);
    } while (pair->result == TLS_WANT_WRITE);
    pair->shaken = pair->result == TLS_DONE;
    if (pair->result == TLS_WANT_READ) {
        assert_int_equal(io.in.len, 0);
    }
}

/* Delivers the client's output in pieces. */
static void client_speaks(struct pair *pair) {
    char *data;
    BIO *bio = SSL_get_wbio(pair->client);
    size_t n = (size_t)BIO_get_mem_data(bio, &data), at = 0;
    while (at < n && (pair->result == TLS_WANT_READ || pair->result == TLS_DONE)) {
        size_t piece = n - at < pair->in_bytes ? n - at : pair->in_bytes;
        shake(pair, str_make(data + at, piece));
        at += piece;
    }
    BIO_reset(bio);
}

/* Runs until neither side has output. Returns: whether both handshakes are complete. */
static bool pair_shake(struct pair *pair) {
    pair->result = TLS_WANT_READ;
    for (int i = 0; i < 10 && pair->result == TLS_WANT_READ; i++) {
        SSL_do_handshake(pair->client);
        client_speaks(pair);
    }
    return SSL_do_handshake(pair->client) == 1 && pair->shaken;
}

/* Returns: the last alert that the client got; -1: none. */
static int alert_of(struct pair *pair) {
    char byte;
    SSL_do_handshake(pair->client);
    SSL_read(pair->client, &byte, 1);
    ERR_clear_error();
    return pair->alert;
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static void handshake_in_pieces_succeeds(void **state) {
    static const size_t sizes[] = {1, 2, 3, 5, 7, 64, 100, 1000, WIRE_BYTES};
    struct tls_context *context = test_tls_context(&server_id, NULL);
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        SSL_CTX_set_max_proto_version(client, version);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
                pair_init(&pair, tls_context_ref(context), client, STR(HTTP1));
                pair.in_bytes = sizes[i];
                pair.out_bytes = sizes[j];
                if (!pair_shake(&pair)) {
                    fail_msg("pieces of %zu and %zu: %s", sizes[i], sizes[j], pair.err.text);
                }
                assert_string_equal(tls_session_version(&pair.session),
                                    version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
                assert_false(tls_session_is_resumed(&pair.session));
                pair_fini(&pair);
            }
        }
    }
    SSL_CTX_free(client);
    tls_context_unref(context);
}

/* The client's first flight, truncated after every byte. */
static void handshake_truncated_wants_read(void **state) {
    struct tls_context *context = test_tls_context(&server_id, NULL);
    SSL_CTX *client = test_client_context(&server_id, NULL);
    SSL *ssl = test_client_new(client);
    static struct pair pair;
    char *data;
    (void)state;
    SSL_do_handshake(ssl);
    size_t n = (size_t)BIO_get_mem_data(SSL_get_wbio(ssl), &data);
    for (size_t cut = 0; cut < n; cut++) {
        pair_init(&pair, tls_context_ref(context), client, STR(HTTP1));
        shake(&pair, str_make(data, cut));
        assert_int_equal(pair.result, TLS_WANT_READ);
        pair_fini(&pair);
    }
    SSL_free(ssl);
    SSL_CTX_free(client);
    tls_context_unref(context);
}

/* ---- accepted and refused clients ------------------------------------------------------------ */

static const struct peer_row {
    const char *what;
    int max_version; /* 0: any */
    const char *ciphers;
    struct str offers; /* ALPN */
    bool mutual;       /* the server requires a certificate signed by client_id */
    const struct test_identity *shows;
    size_t n_more;   /* certificates that it sends besides its own */
    struct str alpn; /* the server's */
    bool welcome;
    enum tls_failure why;
    int alert;
} PEERS[] = {
    {.what = "TLS 1.3", .alpn = STR(HTTP1), .welcome = true},
    {.what = "TLS 1.2", .max_version = TLS1_2_VERSION, .alpn = STR(HTTP1), .welcome = true},
    {.what = "TLS 1.1",
     .max_version = TLS1_1_VERSION,
     .ciphers = "ALL@SECLEVEL=0",
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_PROTOCOL,
     .alert = SSL_AD_PROTOCOL_VERSION},
    {.what = "a cipher without forward secrecy",
     .max_version = TLS1_2_VERSION,
     .ciphers = "AES128-GCM-SHA256",
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_PROTOCOL,
     .alert = SSL_AD_HANDSHAKE_FAILURE},
    {.what = "ALPN, ours", .offers = STR("\x08http/1.1"), .alpn = STR(HTTP1), .welcome = true},
    {.what = "ALPN, ours second",
     .offers = STR("\x02h2\x08http/1.1"),
     .alpn = STR(HTTP1),
     .welcome = true},
    {.what = "ALPN, HTTP/1.0", .offers = STR("\x08http/1.0"), .alpn = STR(HTTP1), .welcome = true},
    {.what = "ALPN, only others",
     .offers = STR("\x02h2"),
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_ALPN,
     .alert = SSL_AD_NO_APPLICATION_PROTOCOL},
    {.what = "ALPN, h2 for gRPC", .offers = STR("\x02h2"), .alpn = STR(H2), .welcome = true},
    {.what = "ALPN, HTTP/1.1 for gRPC",
     .offers = STR("\x08http/1.1"),
     .alpn = STR(H2),
     .why = TLS_FAILURE_ALPN,
     .alert = SSL_AD_NO_APPLICATION_PROTOCOL},
    {.what = "no ALPN for gRPC", .alpn = STR(H2), .welcome = true},
    {.what = "ALPN where there is none", .offers = STR("\x02h2"), .welcome = true},
    {.what = "a certificate that is wanted",
     .mutual = true,
     .shows = &client_id,
     .alpn = STR(HTTP1),
     .welcome = true},
    {.what = "certificates of intermediate CAs",
     .mutual = true,
     .shows = &client_id,
     .n_more = 9,
     .alpn = STR(HTTP1),
     .welcome = true},
    {.what = "more bytes than are read",
     .mutual = true,
     .shows = &client_id,
     .n_more = 60,
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_PROTOCOL,
     .alert = SSL_AD_ILLEGAL_PARAMETER},
    {.what = "a certificate that nobody wants",
     .shows = &client_id,
     .alpn = STR(HTTP1),
     .welcome = true},
    {.what = "no certificate",
     .mutual = true,
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_CERTIFICATE,
     .alert = 116 /* certificate_required */},
    {.what = "no certificate, TLS 1.2",
     .max_version = TLS1_2_VERSION,
     .mutual = true,
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_CERTIFICATE,
     .alert = SSL_AD_HANDSHAKE_FAILURE},
    {.what = "somebody else's certificate",
     .mutual = true,
     .shows = &other_id,
     .alpn = STR(HTTP1),
     .why = TLS_FAILURE_CERTIFICATE,
     .alert = SSL_AD_UNKNOWN_CA},
};

static void let_in(const struct peer_row *row) {
    static struct pair pair;
    SSL_CTX *client = test_client_context(&server_id, row->shows);
    SSL_CTX_set_min_proto_version(client, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(client, row->max_version);
    for (size_t i = 0; i < row->n_more; i++) {
        assert_int_equal(SSL_CTX_add1_chain_cert(client, SSL_CTX_get0_certificate(client)), 1);
    }
    if (row->ciphers) {
        assert_int_equal(SSL_CTX_set_cipher_list(client, row->ciphers), 1);
    }
    if (row->offers.len > 0) {
        SSL_CTX_set_alpn_protos(client, (const unsigned char *)row->offers.ptr,
                                (unsigned)row->offers.len);
    }
    pair_init(&pair, test_tls_context(&server_id, row->mutual ? &client_id : NULL), client,
              row->alpn);
    bool welcome = pair_shake(&pair);
    if (welcome != row->welcome) {
        fail_msg("%s: %s", row->what, pair.result == TLS_FAILED ? pair.err.text : "was let in");
    }
    if (!welcome) {
        int alert = alert_of(&pair);
        if (pair.result != TLS_FAILED || pair.why != row->why || alert != row->alert) {
            fail_msg("%s: failure %d, alert %d: %s", row->what, (int)pair.why, alert,
                     pair.err.text);
        }
    }
    pair_fini(&pair);
    SSL_CTX_free(client);
}

static void handshake_peers_match_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(PEERS) / sizeof(PEERS[0]); i++) {
        let_in(&PEERS[i]);
    }
}

static void alpn_picks_common_protocol(void **state) {
    static struct pair pair;
    const unsigned char *chosen;
    unsigned n;
    SSL_CTX *client = test_client_context(&server_id, NULL);
    (void)state;
    SSL_CTX_set_alpn_protos(client, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    pair_init(&pair, test_tls_context(&server_id, NULL), client, STR(HTTP1));
    assert_true(pair_shake(&pair));
    SSL_get0_alpn_selected(pair.client, &chosen, &n);
    assert_true(str_is(str_make((const char *)chosen, n), "http/1.1"));
    pair_fini(&pair);
    SSL_CTX_free(client);
}

static void plaintext_first_bytes_are_detected(void **state) {
    static const struct {
        struct str sent;
        bool plaintext;
    } rows[] = {
        {STR("GET / HTTP/1.1\r\n\r\n"), true},
        {STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), true},
        {STR("\0\1\0\0\0\0\0\0\0\0\0\0"), false},
        {STR("\x16\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff"), false},
        {STR("\x17\x03\x03\x00\x07\x00\x00\x00\x00\x00\x00\x00"), false},
        {STR("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"), false},
        {STR("{\"inputs\":[]}"), false},
    };
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pair_init(&pair, test_tls_context(&server_id, NULL), client, STR(HTTP1));
        assert_true(tls_looks_like_plaintext(rows[i].sent) == rows[i].plaintext);
        shake(&pair, rows[i].sent);
        if (pair.result != TLS_FAILED || pair.why != TLS_FAILURE_PROTOCOL) {
            fail_msg("row %zu: %d, %d", i, (int)pair.result, (int)pair.why);
        }
        assert_true(pair.err.text[0] != '\0');
        pair_fini(&pair);
    }
    SSL_CTX_free(client);
}

/* The client does not trust the server's certificate and sends an alert. */
static void handshake_client_alert_is_refused(void **state) {
    SSL_CTX *client = test_client_context(&other_id, NULL);
    static struct pair pair;
    (void)state;
    pair_init(&pair, test_tls_context(&server_id, NULL), client, STR(HTTP1));
    assert_false(pair_shake(&pair));
    assert_int_equal(pair.result, TLS_FAILED);
    assert_int_equal(pair.why, TLS_FAILURE_REFUSED);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

/* ---- data ------------------------------------------------------------------------------------ */

static char plain[3 * TLS_RECORD_BYTES], opened[sizeof(plain)], sealed[WIRE_BYTES];

/* Returns: all encrypted bytes of the client. */
static struct str client_wire(struct pair *pair) {
    char *data;
    size_t n = (size_t)BIO_get_mem_data(SSL_get_wbio(pair->client), &data);
    assert_true(n <= sizeof(sealed));
    memcpy(sealed, data, n);
    BIO_reset(SSL_get_wbio(pair->client));
    return str_make(sealed, n);
}

static enum tls_result read_piece(struct pair *pair, struct str in, size_t n_room, size_t *n_all) {
    struct tls_io io = {.in = in, .out = pair->out, .out_cap = WIRE_BYTES};
    enum tls_result result;
    do {
        size_t n, room = sizeof(opened) - *n_all < n_room ? sizeof(opened) - *n_all : n_room;
        result = tls_session_read(&pair->session, &io, opened + *n_all, room, &n, &pair->err);
        *n_all += n;
    } while (result == TLS_DONE && *n_all < sizeof(opened));
    deliver(pair, &io);
    return result;
}

static void established(struct pair *pair, SSL_CTX *client) {
    pair_init(pair, test_tls_context(&server_id, NULL), client, STR(HTTP1));
    assert_true(pair_shake(pair));
}

static void read_in_pieces_is_intact(void **state) {
    static const size_t lengths[] = {1, 100, TLS_RECORD_BYTES, TLS_RECORD_BYTES + 1, sizeof(plain)};
    static const size_t pieces[] = {1, 3, 1000, WIRE_BYTES};
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    (void)state;
    established(&pair, client);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t j = 0; j < 16; j++) {
            size_t piece = pieces[j % 4], room = pieces[j / 4], n_all = 0;
            assert_int_equal(SSL_write(pair.client, plain, (int)lengths[i]), (int)lengths[i]);
            struct str in = client_wire(&pair);
            for (size_t at = 0; at < in.len; at += piece) {
                size_t n = in.len - at < piece ? in.len - at : piece;
                enum tls_result result = read_piece(&pair, str_make(in.ptr + at, n), room, &n_all);
                assert_true(result == TLS_WANT_READ ||
                            (result == TLS_DONE && n_all == sizeof(opened)));
            }
            assert_int_equal(n_all, lengths[i]);
            assert_memory_equal(opened, plain, lengths[i]);
        }
    }
    pair_fini(&pair);
    SSL_CTX_free(client);
}

static void write_at_every_buffer_size_is_intact(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    (void)state;
    established(&pair, client);
    for (size_t room = 0; room < 3 * TLS_ENCRYPTED_RECORD_MAX_BYTES; room += 997) {
        struct tls_io io = {.out = pair.out, .out_cap = room};
        size_t n = 0;
        enum tls_result result;
        while ((result = tls_session_write(&pair.session, &io,
                                           str_make(plain + n, TLS_RECORD_BYTES))) == TLS_DONE) {
            n += TLS_RECORD_BYTES;
        }
        assert_int_equal(result, TLS_WANT_WRITE);
        assert_true(room < TLS_ENCRYPTED_RECORD_MAX_BYTES ? n == 0 : n > 0);
        deliver(&pair, &io);
        size_t got = 0;
        int rc;
        while ((rc = SSL_read(pair.client, opened + got, (int)(sizeof(opened) - got))) > 0) {
            got += (size_t)rc;
        }
        assert_int_equal(got, n);
        assert_memory_equal(opened, plain, n);
    }
    pair_fini(&pair);
    SSL_CTX_free(client);
}

static void record_with_flipped_bit_fails(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    size_t n_record = 0;
    (void)state;
    for (size_t at = 0; at == 0 || at < n_record; at++) {
        size_t n_all = 0;
        established(&pair, client);
        SSL_write(pair.client, "hello", 5);
        struct str in = client_wire(&pair);
        n_record = in.len;
        sealed[at] ^= 1;
        enum tls_result result = read_piece(&pair, in, sizeof(opened), &n_all);
        assert_int_equal(n_all, 0);
        /* A larger record length means that more may still come. */
        bool longer = (at == 3 || at == 4) && result == TLS_WANT_READ;
        if (result != TLS_FAILED && !longer) {
            fail_msg("byte %zu: %d", at, (int)result);
        }
        if (result == TLS_FAILED) {
            struct tls_io io = {.out = pair.out, .out_cap = WIRE_BYTES};
            assert_true(alert_of(&pair) >= 0);
            tls_session_send_close_notify(&pair.session, &io);
            assert_int_equal(io.out_len, 0);
        }
        pair_fini(&pair);
    }
    SSL_CTX_free(client);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void close_notify_both_ways(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    size_t n_all = 0;
    char byte;
    (void)state;
    established(&pair, client);
    /* The client's close_notify, after its last data. */
    SSL_write(pair.client, "bye", 3);
    SSL_shutdown(pair.client);
    assert_int_equal(read_piece(&pair, client_wire(&pair), sizeof(opened), &n_all), TLS_CLOSED);
    assert_int_equal(n_all, 3);
    /* The server may still send, and then closes too. */
    struct tls_io io = {.out = pair.out, .out_cap = WIRE_BYTES};
    assert_int_equal(tls_session_write(&pair.session, &io, STR("see you")), TLS_DONE);
    tls_session_send_close_notify(&pair.session, &io);
    deliver(&pair, &io);
    assert_int_equal(SSL_read(pair.client, opened, sizeof(opened)), 7);
    assert_int_equal(SSL_read(pair.client, &byte, 1), 0);
    assert_int_equal(SSL_get_error(pair.client, 0), SSL_ERROR_ZERO_RETURN);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

/* close_notify during the handshake is a failure. */
static void close_notify_during_handshake_fails(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    (void)state;
    pair_init(&pair, test_tls_context(&server_id, NULL), client, STR(HTTP1));
    shake(&pair, STR("\x15\x03\x01\x00\x02\x01\x00"));
    assert_int_equal(pair.result, TLS_FAILED);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static SSL_SESSION *ticket;

static int on_ticket(SSL *ssl, SSL_SESSION *session) {
    (void)ssl;
    SSL_SESSION_free(ticket);
    ticket = session;
    return 1;
}

static void session_ticket_resumes_session(void **state) {
    struct tls_context *context = test_tls_context(&server_id, &client_id);
    SSL_CTX *client = test_client_context(&server_id, &client_id);
    static struct pair pair;
    char byte;
    (void)state;
    SSL_CTX_set_session_cache_mode(client, SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(client, on_ticket);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        SSL_CTX_set_max_proto_version(client, version);
        for (int round = 0; round < 3; round++) {
            pair_init(&pair, tls_context_ref(context), client, STR(HTTP1));
            if (round > 0) {
                SSL_set_session(pair.client, ticket);
            }
            assert_true(pair_shake(&pair));
            SSL_read(pair.client, &byte, 1); /* processes tickets */
            if (tls_session_is_resumed(&pair.session) != (round > 0)) {
                fail_msg("%s, round %d", tls_session_version(&pair.session), round);
            }
            pair_fini(&pair);
        }
    }
    /* Changed files come with new ticket keys: a client accepted then may not be accepted now. */
    pair_init(&pair, test_tls_context(&server_id, &client_id), client, STR(HTTP1));
    SSL_set_session(pair.client, ticket);
    assert_true(pair_shake(&pair));
    assert_false(tls_session_is_resumed(&pair.session));
    pair_fini(&pair);
    SSL_SESSION_free(ticket);
    ticket = NULL;
    SSL_CTX_free(client);
    tls_context_unref(context);
}

static void renegotiation_is_refused(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    size_t n_all = 0;
    (void)state;
    SSL_CTX_set_max_proto_version(client, TLS1_2_VERSION);
    established(&pair, client);
    SSL_renegotiate(pair.client);
    SSL_do_handshake(pair.client);
    assert_int_equal(read_piece(&pair, client_wire(&pair), sizeof(opened), &n_all), TLS_WANT_READ);
    assert_int_equal(alert_of(&pair), SSL_AD_NO_RENEGOTIATION);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

/* The client requests a key update, and gets ours. */
static void key_update_is_accepted(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    size_t n_all = 0;
    (void)state;
    established(&pair, client);
    SSL_key_update(pair.client, SSL_KEY_UPDATE_REQUESTED);
    SSL_write(pair.client, "new", 3);
    assert_int_equal(read_piece(&pair, client_wire(&pair), sizeof(opened), &n_all), TLS_WANT_READ);
    assert_int_equal(n_all, 3);
    struct tls_io io = {.out = pair.out, .out_cap = WIRE_BYTES};
    assert_int_equal(tls_session_write(&pair.session, &io, STR("too")), TLS_DONE);
    deliver(&pair, &io);
    assert_int_equal(SSL_read(pair.client, opened, sizeof(opened)), 3);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

/* Returns: how many messages the session has read when it fails; 0: it does not. */
static size_t fails_after(struct pair *pair, void (*send)(struct pair *pair), size_t n) {
    size_t n_all = 0;
    for (size_t i = 1; i <= n; i++) {
        send(pair);
        enum tls_result result = read_piece(pair, client_wire(pair), sizeof(opened), &n_all);
        if (result == TLS_FAILED) {
            return i;
        }
        assert_int_equal(result, TLS_WANT_READ);
    }
    return 0;
}

static void update_keys(struct pair *pair) {
    SSL_key_update(pair->client, SSL_KEY_UPDATE_NOT_REQUESTED);
    assert_int_equal(SSL_do_handshake(pair->client), 1);
}

static void update_both_keys(struct pair *pair) {
    SSL_key_update(pair->client, SSL_KEY_UPDATE_REQUESTED);
    assert_int_equal(SSL_do_handshake(pair->client), 1);
}

static void update_keys_and_write(struct pair *pair) {
    update_keys(pair);
    assert_int_equal(SSL_write(pair->client, "a", 1), 1);
}

/* What a client can send without data is bounded, however it is cut. */
static void messages_of_tls_itself_are_bounded(void **state) {
    static const struct {
        void (*send)(struct pair *pair);
        size_t at; /* fails with this one */
    } cases[] = {
        {update_keys, TLS_EXTRA_MAX + 1},
        {update_both_keys, TLS_EXTRA_MAX / 2 + 1},
        {update_keys_and_write, TLS_EXTRA_MAX + 1},
    };
    static struct pair pair;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        SSL_CTX *client = test_client_context(&server_id, NULL);
        established(&pair, client);
        assert_int_equal(fails_after(&pair, cases[i].send, 4 * TLS_EXTRA_MAX), cases[i].at);
        assert_true(pair.session.broken);
        pair_fini(&pair);
        SSL_CTX_free(client);
    }
}

static void write_a_mebibyte(struct pair *pair) {
    for (size_t n = 0, left = TLS_EXTRA_BYTES; left > 0; left -= n) {
        size_t n_all = 0;
        n = left < TLS_RECORD_BYTES ? left : TLS_RECORD_BYTES;
        assert_int_equal(SSL_write(pair->client, plain, (int)n), n);
        assert_int_equal(read_piece(pair, client_wire(pair), sizeof(opened), &n_all),
                         TLS_WANT_READ);
        assert_int_equal(n_all, n);
    }
}

static void messages_of_tls_itself_begin_anew_with_data(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    (void)state;
    established(&pair, client);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fails_after(&pair, update_keys, TLS_EXTRA_MAX), 0);
        write_a_mebibyte(&pair);
    }
    assert_int_equal(fails_after(&pair, update_keys, 2 * TLS_EXTRA_MAX), TLS_EXTRA_MAX + 1);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

/* All at once: the session stops reading in the middle. */
static void messages_of_tls_itself_in_one_piece_are_bounded(void **state) {
    SSL_CTX *client = test_client_context(&server_id, NULL);
    static struct pair pair;
    size_t n_all = 0;
    (void)state;
    established(&pair, client);
    for (int i = 0; i < 1000; i++) {
        update_keys(&pair);
    }
    assert_int_equal(read_piece(&pair, client_wire(&pair), sizeof(opened), &n_all), TLS_FAILED);
    assert_int_equal(pair.session.n_extra, TLS_EXTRA_MAX + 1);
    pair_fini(&pair);
    SSL_CTX_free(client);
}

static int make_identities(void **state) {
    (void)state;
    test_identity_init(&server_id, "server", NULL);
    test_identity_init(&client_id, "client", NULL);
    test_identity_init(&other_id, "other", NULL);
    for (size_t i = 0; i < sizeof(plain); i++) {
        plain[i] = (char)(i * 31 + i / 251);
    }
    return 0;
}

static int free_identities(void **state) {
    (void)state;
    test_identity_fini(&server_id);
    test_identity_fini(&client_id);
    test_identity_fini(&other_id);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handshake_in_pieces_succeeds),
        cmocka_unit_test(handshake_truncated_wants_read),
        cmocka_unit_test(handshake_peers_match_table),
        cmocka_unit_test(alpn_picks_common_protocol),
        cmocka_unit_test(plaintext_first_bytes_are_detected),
        cmocka_unit_test(handshake_client_alert_is_refused),
        cmocka_unit_test(read_in_pieces_is_intact),
        cmocka_unit_test(write_at_every_buffer_size_is_intact),
        cmocka_unit_test(record_with_flipped_bit_fails),
        cmocka_unit_test(close_notify_both_ways),
        cmocka_unit_test(close_notify_during_handshake_fails),
        cmocka_unit_test(session_ticket_resumes_session),
        cmocka_unit_test(renegotiation_is_refused),
        cmocka_unit_test(key_update_is_accepted),
        cmocka_unit_test(messages_of_tls_itself_are_bounded),
        cmocka_unit_test(messages_of_tls_itself_begin_anew_with_data),
        cmocka_unit_test(messages_of_tls_itself_in_one_piece_are_bounded),
    };
    return cmocka_run_group_tests(tests, make_identities, free_identities);
}
