/* The settings of `sluice pick`: defaults are as documented, and invalid combinations are
 * rejected. */
#include "program/picker/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/log.h"

enum { MOST = 8 };

/* Reads "pick" and `args`, which end with NULL. */
static int read_args(struct arena *arena, struct pick_settings *out, const char *const *args) {
    static char texts[MOST][128];
    char *argv[MOST];
    int n = 0;
    strcpy(texts[n], "pick");
    argv[n] = texts[n];
    for (n = 1; args[n - 1]; n++) {
        assert_true(n < MOST && strlen(args[n - 1]) < sizeof(texts[n]));
        strcpy(texts[n], args[n - 1]);
        argv[n] = texts[n];
    }
    return pick_settings_read(n, argv, arena, out);
}

static void pick_settings_defaults(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct pick_settings settings;
    const char *const args[] = {"--endpoint", "10.0.0.1:8000", NULL};
    assert_int_equal(read_args(arena, &settings, args), -1);
    assert_int_equal(settings.grpc.n, 1);
    assert_string_equal(settings.grpc.items[0], "127.0.0.1:9002");
    assert_int_equal(settings.health.n, 0);
    assert_string_equal(settings.metrics, "127.0.0.1:9090");
    assert_true(settings.workers >= 1);
    assert_null(settings.config);
    assert_null(settings.ready_file);
    assert_false(pick_has_tls(&settings));
    assert_int_equal(settings.log_level, LOG_INFO);
    assert_int_equal(settings.drain_timeout_ns, 30000000000);
    assert_int_equal(settings.reload_interval_ns, 1000000000);
    assert_int_equal(settings.answer_timeout_ns, 30000000000);
    assert_int_equal(settings.max_body_size, 64 << 20);
    /* a share of the memory that this process may use */
    assert_int_equal(settings.body_memory.percent, 40);
    assert_true(settings.body_memory.n_bytes > 0);
    assert_true(settings.body_memory.n_bytes < settings.memory_limit.n_bytes);
    assert_true(settings.max_streams >= 1024);
    struct pool_watch_options pool = pick_pool_options(&settings);
    assert_null(pool.config);
    assert_int_equal(pool.n_endpoints, 1);
    assert_string_equal(pool.endpoints[0], "10.0.0.1:8000");
    arena_free(arena);
}

static void pick_settings_explain_flags_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct pick_settings settings;
    const char *const args[] = {"--config=pool.yaml", "--explain", "--subset=", NULL};
    assert_int_equal(read_args(arena, &settings, args), -1);
    assert_true(settings.explain);
    assert_string_equal(settings.path, "/");
    assert_string_equal(settings.method, "POST");
    assert_string_equal(settings.subset, ""); /* an empty hint */
    assert_null(settings.selection);          /* none */
    arena_free(arena);
}

static void pick_settings_invalid_refused(void **state) {
    (void)state;
    static const char *const rows[][4] = {
        {NULL},
        {"--endpoint=localhost", NULL},
        {"--endpoint=10.0.0.1:8000", "--model=m", NULL},
        {"--endpoint=10.0.0.1:8000", "--grpc=9002", NULL},
        {"--endpoint=10.0.0.1:8000", "--grpc=grpcs://:9002", NULL},
        {"--endpoint=10.0.0.1:8000", "--metrics=9002", NULL},
        {"--endpoint=10.0.0.1:8000", "--grpc-tls-key=k", NULL},
        {"--endpoint=10.0.0.1:8000", "--grpc-tls-client-ca=k", NULL},
        {"--endpoint=10.0.0.1:8000", "--grpc-tls-self-signed", "--grpc-tls-cert=c", NULL},
        {"--config=x", "--check", "--explain", NULL},
        {"--kube", NULL},
        {"--kube", "--pool-name=A", NULL},
        {"--kube", "--pool-name=p", "--pool-namespace=a/b", NULL},
        {"--kube", "--pool-name=p", "--pool-group=apps", NULL},
        {"--config=x", "--kubeconfig=f", NULL},
        {"--config=x", "--pool-namespace=n", NULL},
    };
    struct arena *arena = arena_new(NULL, 0);
    struct pick_settings settings;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(read_args(arena, &settings, rows[i]), 2);
    }
    arena_free(arena);
}

static void pick_settings_cluster_flags_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct pick_settings settings;
    const char *const args[] = {"--kube", "--pool-name", "llama-7b", "--kubeconfig=f", NULL};
    assert_int_equal(read_args(arena, &settings, args), -1);
    struct kube_source_options options = pick_cluster_options(&settings);
    assert_string_equal(options.pool_name, "llama-7b");
    assert_null(options.pool_namespace);
    assert_null(options.pool_group);
    assert_string_equal(options.config.kubeconfig, "f");
    assert_string_equal(settings.grpc.items[0], "127.0.0.1:9002");
    const char *const upstream[] = {"--pool-name=p", "--pool-namespace=n",
                                    "--pool-group=inference.networking.x-k8s.io", NULL};
    assert_int_equal(read_args(arena, &settings, upstream), -1);
    options = pick_cluster_options(&settings);
    assert_true(settings.kube);
    assert_string_equal(options.pool_name, "p");
    assert_string_equal(options.pool_namespace, "n");
    assert_string_equal(options.pool_group, "inference.networking.x-k8s.io");
    assert_string_equal(settings.grpc.items[0], ":9002");
    arena_free(arena);
}

static void pick_settings_self_signed_tls(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct pick_settings settings;
    const char *const args[] = {"--config=x", "--grpc=grpcs://:9002", "--grpc-tls-self-signed",
                                "--grpc-tls-client-ca=ca.pem", NULL};
    assert_int_equal(read_args(arena, &settings, args), -1);
    assert_true(pick_has_tls(&settings));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pick_settings_defaults),
        cmocka_unit_test(pick_settings_explain_flags_are_read),
        cmocka_unit_test(pick_settings_invalid_refused),
        cmocka_unit_test(pick_settings_cluster_flags_are_read),
        cmocka_unit_test(pick_settings_self_signed_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
