/* The settings of `sluice serve`: the documented defaults, every row as flag and as key, and the
 * computed defaults. */
#include "program/model_server/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"

static void settings_defaults(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct serve_settings settings;
    char serve[] = "serve", path[] = "digits.onnx";
    char *argv[] = {serve, path};
    assert_int_equal(serve_settings_read("sluice serve", 2, argv, arena, &settings), -1);
    assert_int_equal(settings.paths.n, 1);
    assert_string_equal(settings.paths.items[0], "digits.onnx");
    assert_int_equal(settings.http.n, 1);
    assert_string_equal(settings.http.items[0], "127.0.0.1:8000");
    assert_string_equal(settings.id, "sluice");
    assert_true(settings.workers >= 1);
    assert_non_null(strstr(settings.backend_dir, "backends"));
    assert_null(settings.ready_file);
    assert_true(settings.strict_readiness);
    assert_false(settings.check);
    assert_int_equal(settings.log_level, LOG_INFO);
    assert_int_equal(settings.log_format, LOG_TEXT);
    assert_int_equal(settings.default_max_batch_size, 64);
    assert_int_equal(settings.max_body_size, 256 << 20);
    assert_int_equal(settings.max_json_size, 64 << 20);
    /* the largest body may be one tensor of UINT8 */
    assert_true(settings.max_tensor_elements >= settings.max_body_size);
    assert_true(settings.request_memory > settings.max_body_size);
    assert_true(settings.max_connections >= 10000);
    assert_int_equal(settings.drain_timeout_ns, 30000000000);
    /* a share of the memory that this process may use */
    assert_int_equal(settings.body_memory.percent, 40);
    assert_true(settings.body_memory.n_bytes > 0);
    assert_true(settings.body_memory.n_bytes < settings.memory_limit.n_bytes);
    assert_int_equal(settings.max_output_size.percent, 10);
    assert_true(settings.max_output_size.n_bytes > 0);
    assert_true(settings.max_output_size.n_bytes < settings.body_memory.n_bytes);
    arena_free(arena);
}

static void settings_flags_and_aliases_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct serve_settings settings;
    char *argv[] = {strdup("serve"),
                    strdup("--model-repository=/a"),
                    strdup("--model-store=/b"),
                    strdup("--http-max-input-size=1000"),
                    strdup("--exit-timeout-secs=5"),
                    strdup("--strict-readiness"),
                    strdup("false"),
                    strdup("--backend-dir=/x"),
                    strdup("--log-level=debug"),
                    strdup("--log-format=json"),
                    strdup("--workers=3")};
    assert_int_equal(serve_settings_read("sluice serve", 11, argv, arena, &settings), -1);
    assert_int_equal(settings.model_repositories.n, 2);
    assert_int_equal(settings.http_max_input_size, 1000);
    assert_int_equal(settings.drain_timeout_ns, 5000000000);
    assert_false(settings.strict_readiness);
    assert_string_equal(settings.backend_dir, "/x");
    assert_int_equal(settings.log_level, LOG_DEBUG);
    assert_int_equal(settings.log_format, LOG_JSON);
    assert_int_equal(settings.workers, 3);
    arena_free(arena);
    for (size_t i = 0; i < sizeof(argv) / sizeof(*argv); i++) {
        free(argv[i]);
    }
}

static void settings_invalid_refused(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct serve_settings settings;
    char serve[] = "serve", port[] = "--http-port=1", config[] = "--config=/nowhere/x.yaml";
    char path[] = "a.onnx", http[] = "--http=127.0.0.1";
    assert_int_equal(serve_settings_read("sluice serve", 1, (char *[]){serve}, arena, &settings),
                     2);
    assert_int_equal(
        serve_settings_read("sluice serve", 3, (char *[]){serve, path, port}, arena, &settings), 2);
    assert_int_equal(
        serve_settings_read("sluice serve", 3, (char *[]){serve, path, config}, arena, &settings),
        2);
    assert_int_equal(
        serve_settings_read("sluice serve", 3, (char *[]){serve, path, http}, arena, &settings), 2);
    arena_free(arena);
}

static void settings_cache_sizes_must_agree(void **state) {
    static const struct {
        const char *flags[2];
        int code;
        uint64_t n_bytes;
    } rows[] = {
        {{"--cache-size=1MiB", NULL}, -1, 1 << 20},
        {{"--response-cache-byte-size=1000", NULL}, -1, 1000},
        {{"--cache-config=local,size=1048576", NULL}, -1, 1 << 20},
        {{"--cache-config=local,size=1MiB", "--cache-size=1048576"}, -1, 1 << 20},
        {{"--cache-config=local,size=1", "--cache-size=2"}, 2, 0},
        {{"--cache-config=local,size=1", "--cache-config=local,size=2"}, 2, 0},
        {{"--cache-config=redis,host=x", NULL}, 2, 0},
        {{"--cache-config=local", NULL}, 2, 0},
        {{"--cache-config=local,size", NULL}, 2, 0},
        {{"--cache-config=local,size=", NULL}, 2, 0},
        {{"--cache-config=local,size=-1", NULL}, 2, 0},
        {{"--cache-config=local,bytes=1", NULL}, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct serve_settings settings;
        char serve[] = "serve", path[] = "a.onnx", one[64], two[64];
        snprintf(one, sizeof(one), "%s", rows[i].flags[0]);
        snprintf(two, sizeof(two), "%s", rows[i].flags[1] ? rows[i].flags[1] : "");
        char *argv[] = {serve, path, one, two};
        assert_int_equal(
            serve_settings_read("sluice serve", rows[i].flags[1] ? 4 : 3, argv, arena, &settings),
            rows[i].code);
        if (rows[i].code == -1) {
            assert_int_equal(settings.cache_size, rows[i].n_bytes);
        }
        arena_free(arena);
    }
}

static void settings_backend_dir_is_found(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    char folder[] = "/tmp/sluice-settings-XXXXXX", beside[64], exe[64];
    assert_non_null(mkdtemp(folder));
    snprintf(beside, sizeof(beside), "%s/backends", folder);
    snprintf(exe, sizeof(exe), "%s/sluice", folder);
    const char *installed = backend_dir_of(exe, arena);
    assert_int_equal(strncmp(installed, folder, strlen(folder)), 0);
    assert_string_not_equal(installed, beside);
    assert_int_equal(mkdir(beside, 0700), 0);
    assert_string_equal(backend_dir_of(exe, arena), beside);
    rmdir(beside);
    rmdir(folder);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_defaults),
        cmocka_unit_test(settings_flags_and_aliases_are_read),
        cmocka_unit_test(settings_invalid_refused),
        cmocka_unit_test(settings_cache_sizes_must_agree),
        cmocka_unit_test(settings_backend_dir_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
