/* A pool follows its file: a valid change is published, an invalid one is not, and both are counted
 * once for each content. */
#include "pick/discovery/file/pool_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"

struct fixture {
    char dir[40], path[60], other[60];
    struct pool_set *pools;
};

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void open_fixture(struct fixture *f, const char *text) {
    struct error err;
    snprintf(f->dir, sizeof(f->dir), "/tmp/pool_watch_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/pool.yaml", f->dir);
    snprintf(f->other, sizeof(f->other), "%s/other.yaml", f->dir);
    if (text) {
        write_file(f->path, text);
    }
    assert_int_equal(pool_set_new(&f->pools, &err), ST_OK);
}

static void close_fixture(struct fixture *f) {
    pool_set_free(f->pools);
    unlink(f->path);
    unlink(f->other);
    assert_int_equal(rmdir(f->dir), 0);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void expect_pool(struct fixture *f, uint64_t generation, uint32_t n_endpoints) {
    struct pool_stats numbers;
    pool_set_get_stats(f->pools, &numbers);
    assert_int_equal(numbers.generation, generation);
    assert_int_equal(numbers.n_endpoints, n_endpoints);
}

#define ONE "endpoints: [10.0.0.1:8000]\n"
#define TWO "endpoints: [10.0.0.1:8000, 10.0.0.2:8000]\n"

static void pool_watch_changed_file_replaces_pools(void **state) {
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    int64_t taken = metric_read(METRIC_RELOADS_POOL);
    int64_t failed = metric_read(METRIC_RELOAD_FAILURES_POOL);
    open_fixture(&f, ONE);
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    expect_pool(&f, 1, 1);
    assert_false(pool_watch_check(watch, true));
    write_file(f.path, ONE); /* the time changes, the content does not */
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 1, 1);
    write_file(f.path, TWO);
    assert_true(pool_watch_check(watch, true));
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 2, 2);
    write_file(f.path, "endpoints: [nonsense]\n");
    assert_false(pool_watch_check(watch, true));
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 2, 2);
    assert_int_equal(metric_read(METRIC_RELOAD_FAILURES_POOL), failed + 1);
    assert_int_equal(unlink(f.path), 0); /* a missing file is another state, and a failure, too */
    assert_false(pool_watch_check(watch, true));
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 2, 2);
    assert_int_equal(metric_read(METRIC_RELOAD_FAILURES_POOL), failed + 2);
    write_file(f.other, ONE); /* replaced by rename */
    assert_int_equal(rename(f.other, f.path), 0);
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 3, 1);
    assert_int_equal(metric_read(METRIC_RELOADS_POOL), taken + 2);
    pool_watch_free(watch);
    close_fixture(&f);
}

static void pool_watch_change_counts_when_two_looks_agree(void **state) {
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    open_fixture(&f, ONE);
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    write_file(f.path, "");
    assert_false(pool_watch_check(watch, false));
    write_file(f.path, TWO);
    assert_false(pool_watch_check(watch, false));
    expect_pool(&f, 1, 1);
    assert_true(pool_watch_check(watch, false));
    expect_pool(&f, 2, 2);
    pool_watch_free(watch);
    close_fixture(&f);
}

static void pool_watch_emptied_file_keeps_endpoints(void **state) {
    static const char *const emptied[] = {"", "endpoints:\n", "models: [a]\n"};
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    open_fixture(&f, TWO);
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    for (size_t i = 0; i < sizeof(emptied) / sizeof(emptied[0]); i++) {
        write_file(f.path, emptied[i]);
        assert_false(pool_watch_check(watch, true));
        expect_pool(&f, 1, 2);
    }
    write_file(f.path, "endpoints: []\n");
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 2, 0);
    write_file(f.path, "\n"); /* it had none */
    assert_true(pool_watch_check(watch, true));
    pool_watch_free(watch);
    close_fixture(&f);
}

static void pool_watch_extra_endpoints_join_pool(void **state) {
    static const char *const endpoints[] = {"10.0.0.2:8000", "[::1]:8000"};
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    open_fixture(&f, ONE);
    struct pool_watch_options options = {
        .config = f.path, .endpoints = endpoints, .n_endpoints = 2};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    expect_pool(&f, 1, 3);
    write_file(f.path, TWO); /* listed twice, one endpoint */
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 2, 3);
    pool_watch_free(watch);
    options.config = NULL;
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    expect_pool(&f, 3, 2);
    assert_false(pool_watch_check(watch, true));
    pool_watch_free(watch);
    close_fixture(&f);
}

static void pool_watch_invalid_start_fails(void **state) {
    static const char *const bad[] = {"10.0.0.1"};
    (void)state;
    struct fixture f;
    struct pool_watch *watch = NULL;
    struct pool_specs specs;
    struct error err;
    open_fixture(&f, NULL);
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_IO);
    assert_non_null(strstr(err.text, "pool.yaml: No such file"));
    assert_int_equal(pool_watch_read(&options, &specs, &err), ST_IO);
    write_file(f.path, "models: {a: b}\n");
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "pool.yaml:1: unknown field \"models.a\""));
    assert_int_equal(pool_watch_read(&options, &specs, &err), ST_BAD_CONFIG);
    options = (struct pool_watch_options){.endpoints = bad, .n_endpoints = 1};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_BAD_CONFIG);
    assert_null(watch);
    assert_int_equal(specs.n, 0);
    expect_pool(&f, 0, 0);
    write_file(f.path, TWO);
    options = (struct pool_watch_options){.config = f.path};
    assert_int_equal(pool_watch_read(&options, &specs, &err), ST_OK);
    assert_int_equal(specs.items[0]->n_endpoints, 2);
    assert_false(specs.is_list);
    expect_pool(&f, 0, 0); /* read without publishing */
    pool_specs_free(&specs);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_watch_changed_file_replaces_pools),
        cmocka_unit_test(pool_watch_change_counts_when_two_looks_agree),
        cmocka_unit_test(pool_watch_emptied_file_keeps_endpoints),
        cmocka_unit_test(pool_watch_extra_endpoints_join_pool),
        cmocka_unit_test(pool_watch_invalid_start_fails),
    };
    return cmocka_run_group_tests_name("pick/discovery/file/pool_watch", tests, NULL, NULL);
}
