/* Fixture for tests of TLS over sockets: the HTTP server of net/server/http/server_fixture.h over
 * TLS, and a blocking client with OpenSSL. */
#ifndef SLUICE_NET_SERVER_TLS_CONN_FIXTURE_H
#define SLUICE_NET_SERVER_TLS_CONN_FIXTURE_H

#include <openssl/err.h>
#include <signal.h>
#include <sys/stat.h>

#include "core/base/log.h"
#include "net/server/conn.h"
#include "net/server/http/server_fixture.h"
#include "net/server/server.h"
#include "net/transport/tls/server.h"
#include "net/transport/tls/tls_fixture.h"

#define HOST "Host: h\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

/* Made by make_tls. */
static struct test_identity server_id;
static struct tls_server *tls;
static SSL_CTX *client_context;
static char body[6 << 20];

/* ---- a client -------------------------------------------------------------------------------- */

static inline void serve_with(struct test_server *server, const struct net_limits *limits,
                              struct net_budget budget) {
    test_server_start_over(server, limits, budget, "127.0.0.1:0", tls);
}

static inline void serve(struct test_server *server) {
    struct net_limits limits = test_limits();
    serve_with(server, &limits, test_budget());
}

static inline SSL *shake_hands(int fd) {
    SSL *ssl = SSL_new(client_context);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1) {
        fail_msg("no handshake: %s", ERR_reason_error_string(ERR_peek_error()));
    }
    return ssl;
}

static inline SSL *connect_tls(const struct test_server *server) {
    return shake_hands(test_connect(server));
}

/* Disconnects without close_notify. */
static inline void hang_up(SSL *ssl) {
    int fd = SSL_get_fd(ssl);
    SSL_free(ssl);
    close(fd);
}

static inline void send_tls(SSL *ssl, struct str text) {
    while (text.len > 0) {
        int n = SSL_write(ssl, text.ptr, text.len < 1 << 20 ? (int)text.len : 1 << 20);
        assert_true(n > 0);
        text = str_make(text.ptr + n, text.len - (size_t)n);
    }
}

/* Returns: fewer when the connection ends before. */
static inline size_t read_tls(SSL *ssl, char *out, size_t n) {
    size_t got = 0;
    int rc = 1;
    while (got < n && rc > 0) {
        size_t left = n - got;
        rc = SSL_read(ssl, out + got, left < 1 << 20 ? (int)left : 1 << 20);
        got += rc > 0 ? (size_t)rc : 0;
    }
    return got;
}

/* Returns: whether it ended with close_notify, so that it was not truncated. */
static inline bool ended_well(SSL *ssl) {
    char byte;
    ERR_clear_error();
    int rc = SSL_read(ssl, &byte, 1);
    return rc == 0 && SSL_get_error(ssl, rc) == SSL_ERROR_ZERO_RETURN;
}

/* Reads a head. Returns: the length of the body that follows; `*status` is the response's. */
static inline size_t read_head(SSL *ssl, int *status) {
    char head[2048] = "";
    size_t n = 0;
    uint64_t length = 0, code = 0;
    while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) {
        assert_true(n < sizeof(head) - 1);
        if (read_tls(ssl, head + n, 1) == 0) {
            fail_msg("the connection ended after \"%s\"", head);
        }
        n++;
    }
    assert_true(num_parse_u64(str_make(head + 9, 3), &code));
    const char *at = strstr(head, "\r\nContent-Length: ");
    if (at) {
        at += strlen("\r\nContent-Length: ");
        assert_true(num_parse_u64(str_make(at, strcspn(at, "\r")), &length));
    }
    *status = (int)code;
    return (size_t)length;
}

static inline void expect_tls(SSL *ssl, int status, const char *text) {
    char got[1024];
    int code;
    size_t n = read_head(ssl, &code);
    assert_true(n <= sizeof(got));
    assert_int_equal(read_tls(ssl, got, n), n);
    if (code != status || !str_is(str_make(got, n), text)) {
        fail_msg("expected %d %s, got %d %.*s", status, text, code, (int)n, got);
    }
}

static inline void send_post(SSL *ssl, const char *path, size_t n_bytes) {
    char head[256];
    int n = snprintf(head, sizeof(head), "POST %s HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n",
                     path, n_bytes);
    send_tls(ssl, str_make(head, (size_t)n));
}

/* ---- setup and teardown ---------------------------------------------------------------------- */

static inline void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static inline int make_tls(void **state) {
    const char *tmp = getenv("TMPDIR");
    char folder[128], cert[160], key[160];
    struct error err;
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    log_configure(LOG_ERROR, LOG_TEXT);
    test_identity_init(&server_id, "server", NULL);
    snprintf(folder, sizeof(folder), "%s/sluice_tls_XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(cert, sizeof(cert), "%s/cert", folder);
    snprintf(key, sizeof(key), "%s/key", folder);
    write_file(cert, server_id.cert_pem);
    write_file(key, server_id.key_pem);
    struct tls_server_options options = {.cert = {"cert", cert}, .key = {"key", key}};
    if (tls_server_new(&options, time(NULL), &tls, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    unlink(cert);
    unlink(key);
    rmdir(folder);
    client_context = test_client_context(&server_id, NULL);
    for (size_t i = 0; i < sizeof(body); i++) {
        body[i] = (char)(i * 31 + i / 251);
    }
    return 0;
}

static inline int free_tls(void **state) {
    (void)state;
    SSL_CTX_free(client_context);
    tls_server_free(tls);
    test_identity_fini(&server_id);
    return 0;
}

#endif
