/* The gRPC client over TLS: valid certificates, and each way in which they can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "net/client/grpc/live_fixture.h"
#include "net/transport/tls/tls_fixture.h"

enum { LARGE_BYTES = 20 << 20 };

static struct test_grpc test;
static struct test_identity server_id, client_id, other_id;
static char folder[128];

/* ---- files ----------------------------------------------------------------------------------- */

static const char *path_of(const char *name, char out[160]) {
    snprintf(out, 160, "%s/%s", folder, name);
    return out;
}

static void write_pem(const char *name, const char *text) {
    char path[160];
    FILE *file = fopen(path_of(name, path), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_files(void **state) {
    const char *tmp = getenv("TMPDIR");
    (void)state;
    log_configure(LOG_ERROR, LOG_TEXT);
    test_identity_init(&server_id, "server", NULL);
    test_identity_init(&client_id, "client", NULL);
    test_identity_init(&other_id, "other", NULL);
    snprintf(folder, sizeof(folder), "%s/sluice_grpc_XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    write_pem("server", server_id.cert_pem);
    write_pem("server-key", server_id.key_pem);
    write_pem("client", client_id.cert_pem);
    write_pem("client-key", client_id.key_pem);
    write_pem("other", other_id.cert_pem);
    write_pem("nothing", "nothing\n");
    return 0;
}

static int remove_files(void **state) {
    static const char *const NAMES[] = {"server",     "server-key", "client",
                                        "client-key", "other",      "nothing"};
    char path[160];
    (void)state;
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        unlink(path_of(NAMES[i], path));
    }
    rmdir(folder);
    test_identity_fini(&server_id);
    test_identity_fini(&client_id);
    test_identity_fini(&other_id);
    return 0;
}

/* ---- client and server ----------------------------------------------------------------------- */

/* `client_ca`: a file name, or NULL. */
static struct tls_server *serve(const char *client_ca) {
    char cert[160], key[160], ca[160];
    struct grpc_limits limits = test_limits();
    struct tls_server_options options = {.cert = {"cert", path_of("server", cert)},
                                         .key = {"key", path_of("server-key", key)}};
    struct tls_server *tls;
    struct error err;
    if (client_ca) {
        options.client_ca = (struct tls_file){"ca", path_of(client_ca, ca)};
    }
    if (tls_server_new(&options, time(NULL), &tls, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    test_grpc_start_over(&test, &limits, test_budget(), tls, "127.0.0.1:0");
    return tls;
}

static void serve_end(struct tls_server *tls) {
    test_grpc_end(&test);
    tls_server_free(tls);
}

struct wish {
    const char *ca, *cert, *key, *server_name; /* file names; NULL: none */
    bool insecure;
};

static void call_over(struct caller *caller, const struct wish *wish, const char *target) {
    char ca[160], cert[160], key[160];
    struct grpc_client_tls tls = {.files.insecure = wish->insecure,
                                  .server_name = wish->server_name};
    if (wish->ca) {
        tls.files.ca = (struct tls_file){"--cacert", path_of(wish->ca, ca)};
    }
    if (wish->cert) {
        tls.files.cert = (struct tls_file){"--cert", path_of(wish->cert, cert)};
        tls.files.key = (struct tls_file){"--key", path_of(wish->key, key)};
    }
    caller_open(caller, &(struct grpc_client_options){.target = str_of(target), .tls = &tls});
}

static void expect_echo(const struct wish *wish) {
    struct caller caller;
    call_over(&caller, wish, address_of(&test));
    for (int i = 0; i < 20; i++) {
        caller_echo(&caller, STR("abc"));
    }
    caller_close(&caller);
}

static void expect_failure(const struct wish *wish, const char *target, const char *expected) {
    struct caller caller;
    struct call_record record;
    call_over(&caller, wish, target);
    caller_call(&caller, &record, "/t.T/Echo", STR("a"));
    assert_ended(&record, ST_IO, expected);
    caller_close(&caller);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void tls_trusted_server_is_accepted(void **state) {
    struct tls_server *tls = serve(NULL);
    (void)state;
    expect_echo(&(struct wish){.ca = "server"});
    expect_echo(&(struct wish){.ca = "server", .server_name = "localhost"});
    expect_echo(&(struct wish){.insecure = true});
    expect_echo(&(struct wish){.insecure = true, .server_name = "somebody.else"});
    serve_end(tls);
}

static void tls_untrusted_server_is_refused(void **state) {
    struct tls_server *tls = serve(NULL);
    const char *at = address_of(&test);
    (void)state;
    expect_failure(&(struct wish){.ca = "other"}, at,
                   "the server's certificate is refused: self-signed certificate (--cacert");
    expect_failure(&(struct wish){0}, at, "the server's certificate is refused: ");
    expect_failure(&(struct wish){.ca = "server", .server_name = "somebody.else"}, at,
                   "the server's certificate is refused: hostname mismatch");
    expect_failure(&(struct wish){.ca = "server", .server_name = "127.0.0.2"}, at,
                   "the server's certificate is refused: IP address mismatch");
    serve_end(tls);
}

static void tls_client_certificate_is_required(void **state) {
    struct tls_server *tls = serve("client");
    (void)state;
    expect_echo(&(struct wish){.ca = "server", .cert = "client", .key = "client-key"});
    expect_failure(&(struct wish){.ca = "server"}, address_of(&test),
                   "the server requires a client certificate (--cert FILE --key FILE)");
    expect_failure(&(struct wish){.ca = "server", .cert = "server", .key = "server-key"},
                   address_of(&test), "the server refused the client certificate (--cert FILE): ");
    serve_end(tls);
}

static void tls_large_messages_are_echoed(void **state) {
    struct tls_server *tls = serve(NULL);
    struct caller caller;
    char *text = malloc(LARGE_BYTES);
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < LARGE_BYTES; i++) {
        text[i] = (char)(i * 31 + i / 251);
    }
    call_over(&caller, &(struct wish){.ca = "server"}, address_of(&test));
    for (size_t n = 1; n < LARGE_BYTES; n = n * 5 + 11) {
        caller_echo(&caller, str_make(text, n));
    }
    caller_echo(&caller, str_make(text, LARGE_BYTES));
    caller_close(&caller);
    free(text);
    serve_end(tls);
}

static void tls_streaming_is_answered(void **state) {
    struct tls_server *tls = serve(NULL);
    struct caller caller;
    struct call_record record;
    (void)state;
    call_over(&caller, &(struct wish){.ca = "server"}, address_of(&test));
    caller_ask(&caller, &record,
               &(struct grpc_client_call_options){.path = STR("/t.T/Bidi"), .streams = true});
    grpc_client_read(record.call);
    for (unsigned i = 1; i <= 10; i++) {
        call_record_send(&record, STR("abc"));
        while (record.n_messages < i) {
            caller_step(&caller, true);
        }
    }
    grpc_client_half_close(record.call);
    caller_until_ended(&caller, &record);
    assert_int_equal(record.in_len, 30);
    assert_answered(&record, str_make(record.in, record.in_len));
    caller_close(&caller);
    serve_end(tls);
}

/* One side uses TLS, the other does not. */
static void tls_on_one_side_only_is_named(void **state) {
    struct tls_server *tls = serve(NULL);
    struct grpc_limits limits = test_limits();
    struct caller caller;
    struct call_record record;
    (void)state;
    caller_open_on(&caller, &test);
    caller_call(&caller, &record, "/t.T/Echo", STR("a"));
    assert_int_equal(record.n_messages, 0);
    assert_ended(&record, ST_IO, "this port takes TLS only");
    caller_close(&caller);
    serve_end(tls);
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    expect_failure(&(struct wish){.insecure = true}, address_of(&test), "");
    test_grpc_end(&test);
}

static void tls_to_plaintext_server_is_named(void **state) {
    struct caller caller;
    struct call_record record;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    call_over(&caller, &(struct wish){.insecure = true}, bare.target);
    caller_unary(&caller, &record, "/t.T/Echo", STR("a"));
    int fd = bare_accept(&bare, &caller);
    bare_hear(fd, &caller);
    test_send(fd, STR("HTTP/1.1 400 Bad Request\r\n\r\n"));
    caller_until_ended(&caller, &record);
    assert_ended(&record, ST_IO, "the server does not use TLS");
    close(fd);
    caller_close(&caller);
    close(bare.fd);
}

/* A TLS server that does not select "h2". */
static void tls_server_without_h2_alpn_is_named(void **state) {
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    struct caller caller;
    struct call_record record;
    struct bare bare;
    (void)state;
    SSL_CTX_use_certificate(context, server_id.cert);
    SSL_CTX_use_PrivateKey(context, server_id.key);
    bare_listen(&bare);
    call_over(&caller, &(struct wish){.ca = "server"}, bare.target);
    caller_unary(&caller, &record, "/t.T/Echo", STR("a"));
    int fd = bare_accept(&bare, &caller);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    while (record.n_ended == 0) {
        (void)SSL_accept(ssl);
        caller_step(&caller, false);
        usleep(200);
    }
    assert_ended(&record, ST_IO, "does not speak HTTP/2 over TLS (ALPN \"h2\")");
    SSL_free(ssl);
    close(fd);
    close(bare.fd);
    caller_close(&caller);
    SSL_CTX_free(context);
}

static void tls_unusable_files_are_bad_config(void **state) {
    static const struct {
        const char *ca, *cert, *key, *expected;
    } CASES[] = {
        {"nothing", NULL, NULL, "/nothing: expected certificates in PEM: "},
        {"absent", NULL, NULL, "/absent: expected certificates in PEM: "},
        {NULL, "nothing", "client-key", "/nothing: expected a certificate in PEM: "},
        {NULL, "client", "server-key", "/server-key: expected the private key of --cert, in PEM: "},
    };
    struct worker *worker;
    struct grpc_client *client;
    struct error err;
    (void)state;
    assert_int_equal(worker_new("test", &worker, &err), ST_OK);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char ca[160], cert[160], key[160];
        struct grpc_client_tls tls = {0};
        tls.files.ca = (struct tls_file){"--cacert", CASES[i].ca ? path_of(CASES[i].ca, ca) : NULL};
        if (CASES[i].cert) {
            tls.files.cert = (struct tls_file){"--cert", path_of(CASES[i].cert, cert)};
            tls.files.key = (struct tls_file){"--key", path_of(CASES[i].key, key)};
        }
        struct grpc_client_options options = {
            .worker = worker, .target = STR("127.0.0.1:1"), .tls = &tls};
        assert_int_equal(grpc_client_new(&options, &client, &err), ST_BAD_CONFIG);
        if (!strstr(err.text, CASES[i].expected)) {
            fail_msg("expected \"%s\", got \"%s\"", CASES[i].expected, err.text);
        }
    }
    worker_free(worker);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tls_trusted_server_is_accepted),
        cmocka_unit_test(tls_untrusted_server_is_refused),
        cmocka_unit_test(tls_client_certificate_is_required),
        cmocka_unit_test(tls_large_messages_are_echoed),
        cmocka_unit_test(tls_streaming_is_answered),
        cmocka_unit_test(tls_on_one_side_only_is_named),
        cmocka_unit_test(tls_to_plaintext_server_is_named),
        cmocka_unit_test(tls_server_without_h2_alpn_is_named),
        cmocka_unit_test(tls_unusable_files_are_bad_config),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
