/* A source before its first request: which configuration it uses, and how its age is computed. Its
 * pool is tested against a real cluster (tests/kube). */
#include "pick/discovery/kube/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Writes a kubeconfig; `name_space` is a member of its context, or empty. */
static void write_config(char *path, const char *name_space) {
    strcpy(path, "kube_source_test.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    dprintf(fd,
            "current-context: c\n"
            "contexts: [{name: c, context: {cluster: s, user: u%s}}]\n"
            "clusters: [{name: s, cluster: {server: 'https://127.0.0.1:1'}}]\n"
            "users: [{name: u, user: {token: t}}]\n",
            name_space);
    close(fd);
}

static struct kube_source *source_of(const char *path, const char *name_space) {
    struct kube_source_options options = {
        .config = {.kubeconfig = path}, .pool_namespace = name_space, .pool_name = "p"};
    struct kube_source *source = NULL;
    struct error err;
    enum status st = kube_source_new(&options, &source, &err);
    if (st != ST_OK) {
        fail_msg("%s", err.text);
    }
    return source;
}

static void source_namespace_comes_from_option_or_config(void **state) {
    (void)state;
    static const struct {
        const char *said, *of_context, *expected;
    } rows[] = {
        {NULL, "", "default"},
        {NULL, ", namespace: models", "models"},
        {"mine", ", namespace: models", "mine"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct kube_source_report report;
        char path[64];
        write_config(path, rows[i].of_context);
        struct kube_source *source = source_of(path, rows[i].said);
        kube_source_report(source, &report);
        assert_string_equal(report.name_space, rows[i].expected);
        assert_string_equal(report.server, "https://127.0.0.1:1");
        assert_string_equal(report.pool, "p");
        assert_false(report.synced);
        assert_false(report.kinds[KUBE_POD].watched);
        assert_null(report.group);
        assert_false(kube_store_has_pool(kube_source_store(source)));
        kube_source_free(source);
        unlink(path);
    }
}

static void source_missing_config_fails(void **state) {
    (void)state;
    struct kube_source_options options = {.config = {.kubeconfig = "/none/such"}, .pool_name = "p"};
    struct kube_source *source = NULL;
    struct error err;
    assert_int_not_equal(kube_source_new(&options, &source, &err), ST_OK);
    assert_non_null(strstr(err.text, "/none/such"));
    assert_null(source);
    kube_source_free(NULL);
}

/* The kind that was heard of the longest ago decides; kinds that are not watched, or are denied, do
 * not count. */
static void source_age_is_that_of_oldest_kind(void **state) {
    (void)state;
    struct kube_source_report report = {.synced = false};
    report.kinds[KUBE_POD] = (struct kube_source_kind){true, {.heard_ns = 50}, {0}};
    report.kinds[KUBE_POOL] = (struct kube_source_kind){true, {.heard_ns = 70}, {0}};
    report.kinds[KUBE_POOL_ALPHA] = (struct kube_source_kind){false, {.heard_ns = 10}, {0}};
    report.kinds[KUBE_MODEL] = (struct kube_source_kind){true, {.heard_ns = 0}, {0}};
    assert_int_equal(kube_source_fresh_ns(&report), 0);
    report.synced = true;
    assert_int_equal(kube_source_fresh_ns(&report), 50);
    report.kinds[KUBE_POD].state.heard_ns = 90;
    assert_int_equal(kube_source_fresh_ns(&report), 70);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(source_namespace_comes_from_option_or_config),
        cmocka_unit_test(source_missing_config_fails),
        cmocka_unit_test(source_age_is_that_of_oldest_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
