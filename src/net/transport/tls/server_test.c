/* TLS files: an error message for each way in which one can be wrong, and reloads while connections
 * are open. */
#include "net/transport/tls/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/os/watched_file.h"
#include "net/transport/tls/context.h"
#include "net/transport/tls/tls_fixture.h"

enum { PATH_BYTES = 256, NOW = 0 };

static char folder[PATH_BYTES - 64];
static struct test_identity server_id, other_id, leaf_id;
static char chain[8192], combined[8192], encrypted[4096], swapped[8192];

/* ---- files ----------------------------------------------------------------------------------- */

static const char *path_of(const char *name) {
    static char paths[4][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static void file_write_bytes(const char *name, const char *data, size_t n) {
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
}

static void file_write(const char *name, const char *text) {
    file_write_bytes(name, text, strlen(text));
}

static struct tls_server_options options_of(char paths[3][PATH_BYTES], bool with_ca) {
    snprintf(paths[0], PATH_BYTES, "%s/cert", folder);
    snprintf(paths[1], PATH_BYTES, "%s/key", folder);
    snprintf(paths[2], PATH_BYTES, "%s/ca", folder);
    return (struct tls_server_options){.cert = {"--tls-cert", paths[0]},
                                       .key = {"--tls-key", paths[1]},
                                       .client_ca = {"--tls-client-ca", with_ca ? paths[2] : NULL}};
}

/* ---- error messages -------------------------------------------------------------------------- */

/* NULL: the file does not exist. */
static const struct file_row {
    const char *what;
    const char *cert, *key, *ca;
    bool with_ca;
    const char *says[3]; /* parts of the message; none: valid */
} FILES[] = {
    {"good", .cert = "S", .key = "K"},
    {"a chain", .cert = "C", .key = "L"},
    {"both in one", .cert = "B", .key = "B"},
    {"with a CA", .cert = "S", .key = "K", .ca = "S", .with_ca = true},
    {"no certificate", .key = "K", .says = {"--tls-cert ", "/cert: ", "No such file"}},
    {"no key", .cert = "S", .says = {"--tls-key ", "/key: ", "No such file"}},
    {"no CA", .cert = "S", .key = "K", .with_ca = true,
     .says = {"--tls-client-ca ", "/ca: ", "No such file"}},
    {"an empty certificate", "", "K", .says = {"/cert: ", "expected a certificate", "empty"}},
    {"an empty key", "S", "", .says = {"/key: ", "expected a private key", "empty"}},
    {"an empty CA", "S", "K", "", .with_ca = true,
     .says = {"/ca: ", "expected a certificate", "empty"}},
    {"swapped", "K", "S", .says = {"/cert: ", "PRIVATE KEY", "swapped"}},
    {"a certificate as the key", "S", "S", .says = {"/key: ", "\"CERTIFICATE\"", "swapped"}},
    {"no PEM", "hello", "K", .says = {"/cert: ", "PEM", "-inform DER"}},
    {"no PEM in the key", "S", "hello", .says = {"/key: ", "PEM", "PKCS#12"}},
    {"damaged", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "K",
     .says = {"/cert: ", "certificate 1", "damaged"}},
    {"cut off", "-----BEGIN CERTIFICATE-----\nMIIB\n", "K", .says = {"/cert: ", "damaged"}},
    {"a damaged key", "S", "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n",
     .says = {"/key: ", "damaged"}},
    {"an encrypted key", "S", "E", .says = {"/key: ", "encrypted", "openssl pkey"}},
    {"another key", "S", "O", .says = {"/key: ", "does not belong", "/CN=server"}},
    {"a chain in the wrong order", "W", "L", .says = {"/cert: ", "own certificate first", "2"}},
};

/* A letter stands for a text made at the start. */
static const char *text_of(const char *text) {
    return strcmp(text, "S") == 0   ? server_id.cert_pem
           : strcmp(text, "K") == 0 ? server_id.key_pem
           : strcmp(text, "O") == 0 ? other_id.key_pem
           : strcmp(text, "L") == 0 ? leaf_id.key_pem
           : strcmp(text, "C") == 0 ? chain
           : strcmp(text, "W") == 0 ? swapped
           : strcmp(text, "B") == 0 ? combined
           : strcmp(text, "E") == 0 ? encrypted
                                    : text;
}

static void put(const char *name, const char *text) {
    unlink(path_of(name));
    if (text) {
        file_write(name, text_of(text));
    }
}

static void tls_server_new_files_match_table(void **state) {
    char paths[3][PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        const struct file_row *row = &FILES[i];
        struct tls_server_options options = options_of(paths, row->with_ca);
        struct tls_server *server = NULL;
        struct error err = {0};
        put("cert", row->cert);
        put("key", row->key);
        put("ca", row->ca);
        enum status st = tls_server_new(&options, NOW, &server, &err);
        if ((st == ST_OK) != (row->says[0] == NULL)) {
            fail_msg("%s: %s", row->what, st == ST_OK ? "was taken" : err.text);
        }
        for (size_t j = 0; j < 3 && row->says[j]; j++) {
            if (!strstr(err.text, row->says[j])) {
                fail_msg("%s: no \"%s\" in \"%s\"", row->what, row->says[j], err.text);
            }
        }
        tls_server_free(server);
    }
}

static void tls_server_new_non_files_are_io_errors(void **state) {
    char paths[3][PATH_BYTES];
    struct tls_server *server;
    struct error err;
    (void)state;
    struct tls_server_options options = options_of(paths, false);
    put("cert", "S");
    put("key", "K");
    options.cert.path = folder;
    assert_int_equal(tls_server_new(&options, NOW, &server, &err), ST_IO);
    assert_non_null(strstr(err.text, "directory"));
    options.cert.path = "/dev/null";
    assert_int_equal(tls_server_new(&options, NOW, &server, &err), ST_IO);
    assert_non_null(strstr(err.text, "expected a regular file"));
    options.cert.path = path_of("pipe"); /* without a writer */
    assert_int_equal(mkfifo(options.cert.path, 0600), 0);
    assert_int_equal(tls_server_new(&options, NOW, &server, &err), ST_IO);
    unlink(options.cert.path);
    options.cert.path = path_of("large");
    assert_int_equal(truncate(path_of("cert"), 0), 0);
    rename(path_of("cert"), options.cert.path);
    assert_int_equal(truncate(options.cert.path, WATCHED_FILE_MAX_BYTES + 1), 0);
    assert_int_equal(tls_server_new(&options, NOW, &server, &err), ST_IO);
    assert_non_null(strstr(err.text, "at most"));
    unlink(options.cert.path);
}

static void certificate_dates_are_checked(void **state) {
    static const struct {
        long from, until;
        const char *says; /* NULL: valid */
    } rows[] = {
        {-3600, 3600, NULL},
        {-7200, -3600, "it expired on 20"},
        {3600, 7200, "not valid before 20"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_identity identity;
        struct error err;
        char expiry[TLS_DATE_BYTES];
        test_identity_init_at(&identity, "dated", NULL, rows[i].from, rows[i].until);
        struct tls_context *context = test_tls_context(&identity, NULL);
        assert_int_equal(strlen(tls_context_expiry(context, expiry)), 23);
        enum status st = tls_context_check_dates(context, time(NULL), &err);
        assert_true((st == ST_OK) == (rows[i].says == NULL));
        if (st != ST_OK && !strstr(err.text, rows[i].says)) {
            fail_msg("no \"%s\" in \"%s\"", rows[i].says, err.text);
        }
        tls_context_unref(context);
        test_identity_fini(&identity);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

static int64_t reloads, failures;

/* Reloads and checks the result and the counters. */
static void check(struct tls_server *server, time_t now, bool at_once, bool made, int n_reloads,
                  int n_failures) {
    assert_true(tls_server_reload(server, now, at_once) == made);
    reloads += n_reloads;
    failures += n_failures;
    assert_int_equal(metric_read(METRIC_RELOADS_TLS), reloads);
    assert_int_equal(metric_read(METRIC_RELOAD_FAILURES_TLS), failures);
}

static void check_once(struct tls_server *server, time_t now, bool made, int n_reloads,
                       int n_failures) {
    check(server, now, true, made, n_reloads, n_failures);
}

/* By a timer. */
static void check_look(struct tls_server *server, time_t now, bool made, int n_reloads,
                       int n_failures) {
    check(server, now, false, made, n_reloads, n_failures);
}

/* Returns: whether new connections get this certificate. */
static bool serves(const struct tls_server *server, const struct test_identity *identity) {
    struct tls_context *context = tls_server_context(server);
    bool same = X509_cmp(SSL_CTX_get0_certificate(context->ssl), identity->cert) == 0;
    tls_context_unref(context);
    return same;
}

static struct tls_server *good_server(char paths[3][PATH_BYTES]) {
    struct tls_server_options options = options_of(paths, false);
    struct tls_server *server;
    struct error err;
    put("cert", "S");
    put("key", "K");
    assert_int_equal(tls_server_new(&options, NOW, &server, &err), ST_OK);
    return server;
}

static void reload_changed_files_makes_new_context(void **state) {
    char paths[3][PATH_BYTES];
    struct tls_server *server = good_server(paths);
    (void)state;
    check_once(server, 1, false, 0, 0);
    put("cert", "S"); /* the same bytes in a new file */
    check_once(server, 2, false, 0, 0);
    struct tls_context *old = tls_server_context(server);
    file_write("cert", chain);
    file_write("key", leaf_id.key_pem);
    check_once(server, 3, true, 1, 0);
    check_once(server, 4, false, 0, 0);
    assert_true(serves(server, &leaf_id));
    assert_true(X509_cmp(SSL_CTX_get0_certificate(old->ssl), server_id.cert) == 0);
    tls_server_free(server);
    assert_non_null(SSL_CTX_get0_certificate(old->ssl)); /* for connections that have it */
    tls_context_unref(old);
}

static void reload_broken_files_keeps_old_context(void **state) {
    char paths[3][PATH_BYTES];
    struct tls_server *server = good_server(paths);
    (void)state;
    file_write("cert", chain); /* the key is written later */
    check_once(server, 1, false, 0, 1);
    check_once(server, 2, false, 0, 0);
    assert_true(serves(server, &server_id));
    put("key", NULL);
    check_once(server, 3, false, 0, 1);
    check_once(server, 4, false, 0, 0);
    put("key", "E");
    check_once(server, 5, false, 0, 1);
    put("key", "L");
    check_once(server, 6, true, 1, 0);
    assert_true(serves(server, &leaf_id));
    tls_server_free(server);
}

static void reload_pair_being_replaced_is_not_taken(void **state) {
    char paths[3][PATH_BYTES];
    struct tls_server *server = good_server(paths);
    (void)state;
    file_write("cert", ""); /* being written */
    check_look(server, 1, false, 0, 0);
    file_write("cert", chain);
    check_look(server, 2, false, 0, 0);
    put("key", "L");
    check_look(server, 3, false, 0, 0);
    assert_true(serves(server, &server_id));
    check_look(server, 4, true, 1, 0);
    check_look(server, 5, false, 0, 0);
    assert_true(serves(server, &leaf_id));
    put("key", "K"); /* it stays that way */
    check_look(server, 6, false, 0, 0);
    check_look(server, 7, false, 0, 1);
    check_look(server, 8, false, 0, 0);
    tls_server_free(server);
}

/* Such as by a tool that writes a new pair all the time. */
static void reload_files_that_never_settle_are_taken(void **state) {
    char paths[3][PATH_BYTES];
    struct tls_server *server = good_server(paths);
    (void)state;
    for (int i = 0; i <= WATCHED_FILE_MAX_UNSETTLED; i++) {
        file_write("cert", i % 2 ? server_id.cert_pem : chain);
        file_write("key", i % 2 ? server_id.key_pem : leaf_id.key_pem);
        bool taken = i == WATCHED_FILE_MAX_UNSETTLED;
        check_look(server, i, taken, taken, 0);
    }
    tls_server_free(server);
}

/* Kubernetes: the files are symlinks through a symlink that is swapped. */
static void reload_follows_swapped_symlinks(void **state) {
    char paths[3][PATH_BYTES];
    (void)state;
    put("cert", NULL);
    put("key", NULL);
    assert_int_equal(mkdir(path_of("v1"), 0700), 0);
    assert_int_equal(mkdir(path_of("v2"), 0700), 0);
    file_write("v1/cert", server_id.cert_pem);
    file_write("v1/key", server_id.key_pem);
    file_write("v2/cert", chain);
    file_write("v2/key", leaf_id.key_pem);
    assert_int_equal(symlink("v1", path_of("data")), 0);
    assert_int_equal(symlink("data/cert", path_of("cert")), 0);
    assert_int_equal(symlink("data/key", path_of("key")), 0);
    struct tls_server_options options = options_of(paths, false);
    struct tls_server *server;
    struct error err;
    assert_int_equal(tls_server_new(&options, NOW, &server, &err), ST_OK);
    assert_int_equal(symlink("v2", path_of("data_new")), 0);
    assert_int_equal(rename(path_of("data_new"), path_of("data")), 0);
    check_once(server, 1, true, 1, 0);
    assert_true(serves(server, &leaf_id));
    tls_server_free(server);
    const char *const left[] = {"v1/cert", "v1/key", "v2/cert", "v2/key", "data", "cert", "key"};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        unlink(path_of(left[i]));
    }
    rmdir(path_of("v1"));
    rmdir(path_of("v2"));
}

/* Ticket keys are renewed even if the files stay. */
static void reload_renews_context_after_12_hours(void **state) {
    char paths[3][PATH_BYTES];
    struct tls_server *server = good_server(paths);
    (void)state;
    struct tls_context *old = tls_server_context(server);
    check_once(server, 11 * 3600, false, 0, 0);
    check_once(server, 12 * 3600, true, 0, 0);
    check_once(server, 13 * 3600, false, 0, 0);
    struct tls_context *renewed = tls_server_context(server);
    assert_ptr_not_equal(old, renewed);
    tls_context_unref(old);
    tls_context_unref(renewed);
    tls_server_free(server);
}

/* ---- whole servers --------------------------------------------------------------------------- */

static int make_identities(void **state) {
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof(folder), "%s/sluice_tls_XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    log_configure(LOG_ERROR, LOG_TEXT);
    test_identity_init(&server_id, "server", NULL);
    test_identity_init(&other_id, "other", NULL);
    test_identity_init(&leaf_id, "leaf", &other_id);
    snprintf(chain, sizeof(chain), "%s%s", leaf_id.cert_pem, other_id.cert_pem);
    snprintf(swapped, sizeof(swapped), "%s%s", other_id.cert_pem, leaf_id.cert_pem);
    snprintf(combined, sizeof(combined), "%s%s", server_id.key_pem, server_id.cert_pem);
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PKCS8PrivateKey(bio, server_id.key, EVP_aes_256_cbc(), "secret", 6, NULL, NULL);
    char *text = test_pem_of(bio);
    snprintf(encrypted, sizeof(encrypted), "%s", text);
    free(text);
    return 0;
}

static int free_identities(void **state) {
    (void)state;
    put("cert", NULL);
    put("key", NULL);
    put("ca", NULL);
    assert_int_equal(rmdir(folder), 0);
    test_identity_fini(&server_id);
    test_identity_fini(&other_id);
    test_identity_fini(&leaf_id);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tls_server_new_files_match_table),
        cmocka_unit_test(tls_server_new_non_files_are_io_errors),
        cmocka_unit_test(certificate_dates_are_checked),
        cmocka_unit_test(reload_changed_files_makes_new_context),
        cmocka_unit_test(reload_broken_files_keeps_old_context),
        cmocka_unit_test(reload_pair_being_replaced_is_not_taken),
        cmocka_unit_test(reload_files_that_never_settle_are_taken),
        cmocka_unit_test(reload_follows_swapped_symlinks),
        cmocka_unit_test(reload_renews_context_after_12_hours),
    };
    return cmocka_run_group_tests(tests, make_identities, free_identities);
}
