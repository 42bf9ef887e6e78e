/* The gRPC client over TLS: calls to our own server, client certificates, and servers that it does
 * not trust, that do not trust it, or that are not TLS servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/grpc/live_fixture.h"
#include "net/transport/tls/server.h"
#include "net/transport/tls/tls_fixture.h"

enum { LARGE_BYTES = 8 << 20, BACKOFF_NS = 20 * 1000 * 1000 };
static struct test_grpc test;
static char folder[] = "/tmp/sluice-grpc-tls-XXXXXX";
static struct test_identity ours, other;

/* ---- files ----------------------------------------------------------------------------------- */

static char *path_of(const char *name) {
    static char paths[64][80];
    static unsigned next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    test_identity_init(&ours, "ours", NULL);
    test_identity_init(&other, "other", NULL);
    write_file("ours.crt", ours.cert_pem);
    write_file("ours.key", ours.key_pem);
    write_file("other.crt", other.cert_pem);
    write_file("other.key", other.key_pem);
    return 0;
}

static int teardown(void **state) {
    static const char *const names[] = {"ours.crt", "ours.key", "other.crt", "other.key"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unlink(path_of(names[i]));
    }
    rmdir(folder);
    test_identity_fini(&ours);
    test_identity_fini(&other);
    return 0;
}

/* ---- both sides ------------------------------------------------------------------------------ */

static struct tls_server *tls;

/* `client_ca` NULL: it asks for no certificate. */
static void serve(const char *client_ca) {
    struct tls_server_options options = {.cert = {"cert", path_of("ours.crt")},
                                         .key = {"key", path_of("ours.key")},
                                         .client_ca = {"ca", client_ca}};
    struct grpc_limits limits = test_limits();
    struct net_budget budget = {.body_memory = 64 << 20, .max_connections = 10};
    struct error err;
    if (tls_server_new(&options, time(NULL), &tls, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    limits.net.max_body_size = LARGE_BYTES;
    test_grpc_start_over(&test, &limits, budget, tls, "127.0.0.1:0");
}

static void serve_end(void) {
    test_grpc_end(&test);
    tls_server_free(tls);
}

static struct grpc_client_tls files_of(const char *ca, const char *cert, const char *key) {
    return (struct grpc_client_tls){.ca = ca ? path_of(ca) : NULL,
                                    .cert = cert ? path_of(cert) : NULL,
                                    .key = key ? path_of(key) : NULL,
                                    .ca_setting = "CA",
                                    .cert_setting = "CERT",
                                    .key_setting = "KEY"};
}

static void open_with(struct caller *caller, const struct grpc_client_tls *files) {
    caller_open(caller,
                &(struct grpc_client_options){.target = str_of(address_of(&test)), .tls = files});
}

/* A call to the server fails with this text. */
static void expect_failure(const struct grpc_client_tls *files, const char *part) {
    struct caller caller;
    struct call_record record;
    open_with(&caller, files);
    caller_call(&caller, &record, "/t.T/Echo", STR("a"));
    assert_ended(&record, ST_IO, part);
    caller_close(&caller);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void client_over_tls_is_answered(void **state) {
    struct grpc_client_tls files = files_of("ours.crt", NULL, NULL);
    struct caller caller;
    (void)state;
    serve(NULL);
    open_with(&caller, &files);
    for (int i = 0; i < 50; i++) {
        char text[3000];
        memset(text, 'a' + i % 26, sizeof(text));
        caller_echo(&caller, str_make(text, (size_t)i * 60));
    }
    assert_int_equal(grpc_client_n_connected(caller.client), 1);
    caller_close(&caller);
    serve_end();
}

/* Several at a time, each of many records in both directions. */
static void client_over_tls_large_messages_are_echoed(void **state) {
    enum { N = 3 };
    struct grpc_client_tls files = files_of("ours.crt", NULL, NULL);
    static struct call_record record[N];
    struct caller caller;
    char *text = malloc(LARGE_BYTES);
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < LARGE_BYTES; i++) {
        text[i] = (char)(i * 31 + i / 251);
    }
    serve(NULL);
    open_with(&caller, &files);
    for (int i = 0; i < N; i++) {
        caller_unary(&caller, &record[i], "/t.T/Echo", str_make(text, LARGE_BYTES));
    }
    for (int i = 0; i < N; i++) {
        caller_until_ended(&caller, &record[i]);
        assert_int_equal(record[i].n_released, 1);
        assert_answered(&record[i], str_make(text, LARGE_BYTES));
    }
    caller_close(&caller);
    serve_end();
    free(text);
}

static void client_certificate_is_sent(void **state) {
    struct grpc_client_tls right = files_of("ours.crt", "other.crt", "other.key");
    struct grpc_client_tls none = files_of("ours.crt", NULL, NULL);
    struct grpc_client_tls wrong = files_of("ours.crt", "ours.crt", "ours.key");
    struct caller caller;
    (void)state;
    serve(path_of("other.crt"));
    open_with(&caller, &right);
    caller_echo(&caller, STR("a"));
    caller_close(&caller);
    expect_failure(&none, "the server requires a client certificate (CERT)");
    expect_failure(&wrong, "the server refused the client certificate (CERT)");
    serve_end();
}

static void client_untrusted_server_is_refused(void **state) {
    struct grpc_client_tls files = files_of("other.crt", NULL, NULL);
    (void)state;
    serve(NULL);
    expect_failure(&files, "the server's certificate is refused: ");
    expect_failure(&files, "(CA sets the trusted CAs)");
    serve_end();
}

static void client_server_without_tls_is_named(void **state) {
    struct grpc_client_tls files = files_of("ours.crt", NULL, NULL);
    struct grpc_limits limits = test_limits();
    (void)state;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    expect_failure(&files, "does the server speak TLS?");
    test_grpc_end(&test);
}

/* Without a word, within the handshake, and then as the client ends within it. */
static void client_connection_lost_in_handshake_is_named(void **state) {
    struct grpc_client_tls files = files_of("ours.crt", NULL, NULL);
    struct caller caller;
    struct call_record record;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    for (int i = 0; i < 2; i++) {
        caller_open(&caller,
                    &(struct grpc_client_options){.target = str_of(bare.target), .tls = &files});
        caller_unary(&caller, &record, "/t.T/Echo", STR("a"));
        int fd = bare_accept(&bare, &caller);
        bare_hear(fd, &caller);
        if (i == 0) {
            close(fd);
            caller_until_ended(&caller, &record);
            assert_ended(&record, ST_IO, "within the TLS handshake");
            caller_close(&caller);
        } else {
            caller_close(&caller);
            assert_ended(&record, ST_CANCELLED, "stopped");
            assert_true(bare_is_closed(fd));
            close(fd);
        }
    }
    close(bare.fd);
}

/* Until the backoff of the last attempt is over, calls end as that one did. `part` NULL: until a
 * call is answered. */
static void call_until(struct caller *caller, const char *part) {
    struct call_record record;
    bool is_there = false;
    while (!is_there) {
        caller_call(caller, &record, "/t.T/Echo", STR("a"));
        is_there = part ? strstr(record.error.text, part) != NULL : record.error.status == ST_OK;
        free(record.in);
    }
}

/* Each connection reads them: a new certificate is used from the next one on. */
static void client_files_are_read_with_each_connection(void **state) {
    struct grpc_client_tls files = files_of("late.crt", NULL, NULL);
    struct caller caller;
    (void)state;
    write_file("late.crt", other.cert_pem);
    serve(NULL);
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(address_of(&test)),
                                                       .tls = &files,
                                                       .limits = {.initial_backoff_ns = BACKOFF_NS,
                                                                  .max_backoff_ns = BACKOFF_NS}});
    call_until(&caller, "the server's certificate is refused");
    unlink(path_of("late.crt"));
    call_until(&caller, "late.crt: expected certificates in PEM");
    write_file("late.crt", ours.cert_pem);
    call_until(&caller, NULL);
    unlink(path_of("late.crt"));
    caller_close(&caller);
    serve_end();
}

static void client_unusable_files_are_bad_config(void **state) {
    const struct {
        struct grpc_client_tls files;
        const char *message;
    } rows[] = {
        {files_of("none", NULL, NULL), "none: expected certificates in PEM"},
        {files_of("ours.key", NULL, NULL), "CA "},
        {files_of(NULL, "ours.key", NULL), "CERT "},
        {files_of(NULL, "ours.crt", NULL), "(KEY FILE)"},
        {files_of(NULL, "ours.crt", "other.key"), "KEY "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct grpc_client *client;
        struct worker *worker;
        struct error err;
        assert_int_equal(worker_new("caller", &worker, &err), ST_OK);
        struct grpc_client_options options = {
            .worker = worker, .target = STR("127.0.0.1:1"), .tls = &rows[i].files};
        assert_int_equal(grpc_client_new(&options, &client, &err), ST_BAD_CONFIG);
        if (!strstr(err.text, rows[i].message)) {
            fail_msg("%s", err.text);
        }
        worker_free(worker);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_over_tls_is_answered),
        cmocka_unit_test(client_over_tls_large_messages_are_echoed),
        cmocka_unit_test(client_certificate_is_sent),
        cmocka_unit_test(client_untrusted_server_is_refused),
        cmocka_unit_test(client_server_without_tls_is_named),
        cmocka_unit_test(client_connection_lost_in_handshake_is_named),
        cmocka_unit_test(client_files_are_read_with_each_connection),
        cmocka_unit_test(client_unusable_files_are_bad_config),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
