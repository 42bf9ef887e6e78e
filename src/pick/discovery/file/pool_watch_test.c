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
    char dir[40], path[60], other[60], third[60];
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
    snprintf(f->third, sizeof(f->third), "%s/third.yaml", f->dir);
    if (text) {
        write_file(f->path, text);
    }
    assert_int_equal(pool_set_new(&f->pools, &err), ST_OK);
}

/* With a watch of the file, which has the text. */
static struct pool_watch *open_watched(struct fixture *f, const char *text) {
    struct pool_watch *watch;
    struct error err;
    open_fixture(f, text);
    const struct pool_watch_options options = {.config = f->path};
    assert_int_equal(pool_watch_new(&options, f->pools, &watch, &err), ST_OK);
    return watch;
}

static void close_fixture(struct fixture *f) {
    pool_set_free(f->pools);
    unlink(f->path);
    unlink(f->other);
    unlink(f->third);
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
    int64_t taken = metric_read(METRIC_RELOADS_POOL);
    int64_t failed = metric_read(METRIC_RELOAD_FAILURES_POOL);
    struct pool_watch *watch = open_watched(&f, ONE);
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
    struct pool_watch *watch = open_watched(&f, ONE);
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
    struct pool_watch *watch = open_watched(&f, TWO);
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

/* --fallback, in place of what the pool says. */
static void pool_watch_fallback_replaces_setting_of_pool(void **state) {
    static const struct {
        const char *text;
        enum pool_watch_fallback given;
        enum protocol_fallback fallback;
        size_t n;
    } CASES[] = {
        {ONE, POOL_WATCH_FALLBACK_CONFIGURED, FALLBACK_NONE, 0},
        {ONE "protocol: {fallback: key}\n", POOL_WATCH_FALLBACK_CONFIGURED, FALLBACK_KEY, 1},
        {ONE, POOL_WATCH_FALLBACK_KEY, FALLBACK_KEY, 1},
        {ONE "protocol: {fallback: list, fallbacks: 3}\n", POOL_WATCH_FALLBACK_KEY, FALLBACK_KEY,
         1},
        {ONE "protocol: {fallback: list, fallbacks: 3}\n", POOL_WATCH_FALLBACK_LIST, FALLBACK_LIST,
         3},
        {ONE "protocol: {fallback: key}\n", POOL_WATCH_FALLBACK_NONE, FALLBACK_NONE, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct pool_watch_options options = {.config_text = CASES[i].text,
                                             .fallback = CASES[i].given};
        struct pool_specs specs;
        struct error err;
        assert_int_equal(pool_watch_read(&options, &specs, &err), ST_OK);
        const struct protocol *protocol = &specs.items[0]->protocol;
        assert_int_equal(protocol->fallback, CASES[i].fallback);
        if (CASES[i].n > 0) {
            assert_int_equal(protocol->n_fallbacks, CASES[i].n);
        }
        pool_specs_free(&specs);
    }
}

#define PICKER                                                                                     \
    "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n"        \
    "- {type: file-discovery, name: f, parameters: {path: %s, watchFile: %s}}\n"                   \
    "dataLayer: {discovery: %s}\n"
#define ENTRY(name, address, port) "- {name: " name ", address: " address ", port: " port "}\n"

/* A configuration that names the endpoints file `path`. */
static void write_picker_of(const struct fixture *f, const char *path, const char *watch_file,
                            const char *discovery) {
    char text[500];
    snprintf(text, sizeof(text), PICKER, path, watch_file, discovery);
    write_file(f->path, text);
}

static void write_picker(const struct fixture *f, const char *watch_file, const char *discovery) {
    write_picker_of(f, f->other, watch_file, discovery);
}

/* Upstream's file-discovery: wrong entries are left out, a file that is wrong as a whole leaves the
 * pool as it is. */
static void pool_watch_endpoints_file_is_followed(void **state) {
    static const char *const unusable[] = {"endpoints: {a: 1}\n", "endpoints: [\n", "other: []\n"};
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    open_fixture(&f, NULL);
    write_picker(&f, "true", "{endpoints: {pluginRef: f}}");
    struct pool_watch_options options = {.config = f.path, .name = "p"};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_IO);
    assert_non_null(strstr(err.text, "other.yaml: No such file"));
    write_file(f.other, "endpoints:\n" ENTRY("a", "10.0.0.1", "'8000'")
                            ENTRY("b", "10.0.0.2", "8000") ENTRY("c", "models.example", "'8000'")
                                ENTRY("d", "10.0.0.4", "'0'") ENTRY("e", "10.0.0.5", "")
                                    ENTRY("a", "10.0.0.1",
                                          "'8000'") "- {name: f, port: '8000'}\n- 7\n"
                                                    "- {name: g, namespace: x, address: 10.0.0.7, "
                                                    "port: '8000', labels: {a: b}}\n");
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    expect_pool(&f, 1, 3);
    struct pool_specs specs;
    assert_int_equal(pool_watch_read(&options, &specs, &err), ST_OK);
    const struct pool_spec *spec = specs.items[0];
    assert_true(str_is(spec->name, "p"));
    assert_int_equal(spec->n_endpoints, 4); /* one twice */
    assert_true(str_is(spec->endpoints[3].name.pod, "g"));
    assert_true(str_is(spec->endpoints[3].name.name_space, "x"));
    assert_true(str_is(spec->endpoints[0].name.name_space, "default"));
    assert_true(str_is(pool_labels_find(spec->endpoints[3].labels, STR("a"))->value, "b"));
    pool_specs_free(&specs);
    for (size_t i = 0; i < sizeof(unusable) / sizeof(unusable[0]); i++) {
        write_file(f.other, unusable[i]);
        assert_false(pool_watch_check(watch, true));
        expect_pool(&f, 1, 3);
    }
    write_file(f.other, "endpoints:\n" ENTRY("a", "10.0.0.1", "'8000'"));
    assert_true(pool_watch_check(watch, true));
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 2, 1);
    assert_true(pool_watch_rebuild(watch)); /* of the text that was read last */
    expect_pool(&f, 3, 1);
    write_file(f.other, "endpoints: []\n");
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 4, 0);
    pool_watch_free(watch);
    close_fixture(&f);
}

static void pool_watch_endpoints_file_is_read_once_unless_watched(void **state) {
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct pool_specs specs;
    struct error err;
    bool named = false;
    open_fixture(&f, NULL);
    write_picker(&f, "false", "{pluginRef: f}"); /* v1alpha1 */
    write_file(f.other, "{\"endpoints\": [{\"name\": \"a\", \"address\": \"10.0.0.1\", "
                        "\"port\": \"8000\"}]}");
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_names_endpoints_file(&options, &named, &err), ST_OK);
    assert_true(named);
    assert_int_equal(pool_watch_read(&options, &specs, &err), ST_OK);
    assert_int_equal(specs.items[0]->n_endpoints, 1);
    pool_specs_free(&specs);
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    write_file(f.other, "endpoints:\n" ENTRY("a", "10.0.0.1", "1") ENTRY("b", "10.0.0.1", "2"));
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 1, 1);
    pool_watch_free(watch);
    write_file(f.path, ONE);
    assert_int_equal(pool_watch_names_endpoints_file(&options, &named, &err), ST_OK);
    assert_false(named);
    close_fixture(&f);
}

#define LISTED_ONE "endpoints:\n" ENTRY("a", "10.0.0.1", "8000")
#define LISTED_TWO LISTED_ONE ENTRY("b", "10.0.0.2", "8000")

/* A configuration that is refused changes nothing: the endpoints file in use is followed, and not
 * the one that the configuration names. */
static void pool_watch_refused_config_keeps_endpoints_file(void **state) {
    static const struct {
        const char *third; /* the file that the refused configuration names; NULL: missing */
        const char *watch_file;
    } cases[] = {{NULL, "true"},
                 {"endpoints: [\n", "true"},
                 {"other: []\n", "true"},
                 {"other: []\n", "false"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;
        struct pool_watch *watch;
        struct error err;
        int64_t failed = metric_read(METRIC_RELOAD_FAILURES_POOL);
        open_fixture(&f, NULL);
        write_picker(&f, "true", "{pluginRef: f}");
        write_file(f.other, LISTED_ONE);
        struct pool_watch_options options = {.config = f.path};
        assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
        expect_pool(&f, 1, 1);
        if (cases[i].third) {
            write_file(f.third, cases[i].third);
        }
        write_picker_of(&f, f.third, cases[i].watch_file, "{pluginRef: f}");
        assert_false(pool_watch_check(watch, true));
        assert_int_equal(metric_read(METRIC_RELOAD_FAILURES_POOL), failed + 1);
        write_file(f.other, LISTED_TWO);
        assert_true(pool_watch_check(watch, true));
        expect_pool(&f, 2, 2);
        write_file(f.third, LISTED_ONE); /* the file was refused, with its configuration */
        assert_false(pool_watch_check(watch, true));
        expect_pool(&f, 2, 2);
        write_picker(&f, "true", "{pluginRef: f}"); /* put right again */
        assert_true(pool_watch_check(watch, true));
        assert_false(pool_watch_check(watch, true));
        expect_pool(&f, 3, 2);
        pool_watch_free(watch);
        close_fixture(&f);
    }
}

static void pool_watch_config_without_endpoints_file_ends_its_watch(void **state) {
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    open_fixture(&f, NULL);
    write_picker(&f, "true", "{pluginRef: f}");
    write_file(f.other, LISTED_TWO);
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    expect_pool(&f, 1, 2);
    write_file(f.path, ONE);
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 2, 1);
    write_file(f.other, "endpoints: []\n");
    assert_false(pool_watch_check(watch, true));
    expect_pool(&f, 2, 1);
    write_file(f.other, LISTED_TWO);
    write_picker(&f, "true", "{pluginRef: f}"); /* named again: read again */
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 3, 2);
    pool_watch_free(watch);
    close_fixture(&f);
}

/* A configuration that names the same file has the text that was read last. */
static void pool_watch_changed_config_keeps_text_of_endpoints_file(void **state) {
    (void)state;
    struct fixture f;
    struct pool_watch *watch;
    struct error err;
    open_fixture(&f, NULL);
    write_picker(&f, "true", "{pluginRef: f}");
    write_file(f.other, LISTED_TWO);
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_new(&options, f.pools, &watch, &err), ST_OK);
    assert_int_equal(unlink(f.other), 0);
    write_picker(&f, "false", "{pluginRef: f}");
    assert_true(pool_watch_check(watch, true));
    expect_pool(&f, 2, 2);
    write_file(f.other, LISTED_ONE); /* not watched any more */
    assert_false(pool_watch_check(watch, true));
    write_picker(&f, "true", "{pluginRef: f}");
    assert_true(pool_watch_check(watch, true)); /* the configuration, and then the file */
    expect_pool(&f, 4, 1);
    assert_false(pool_watch_check(watch, true));
    pool_watch_free(watch);
    close_fixture(&f);
}

/* As upstream: unknown members are ignored, and an entry needs no name. */
static void pool_watch_endpoints_file_entry_has_unknown_members_or_no_name(void **state) {
    static const char *const names[] = {"a", "", "", "d"};
    (void)state;
    struct fixture f;
    struct pool_specs specs;
    struct error err;
    open_fixture(&f, NULL);
    write_picker(&f, "true", "{pluginRef: f}");
    write_file(f.other, "endpoints:\n"
                        "- {name: a, address: 10.0.0.1, port: '8000', zone: {x: [y]}, weight: 7}\n"
                        "- {address: 10.0.0.2, port: '8000', labels: {k: v}}\n"
                        "- {name: '', address: 10.0.0.3, port: '8000'}\n"
                        "- {name: d, namespace: '', address: 10.0.0.4, port: '8000'}\n"
                        "- {name: e, address: nonsense, port: '8000', zone: z}\n");
    struct pool_watch_options options = {.config = f.path};
    assert_int_equal(pool_watch_read(&options, &specs, &err), ST_OK);
    const struct pool_spec *spec = specs.items[0];
    assert_int_equal(spec->n_endpoints, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct pool_spec_endpoint *endpoint = &spec->endpoints[i];
        char text[ENDPOINT_TEXT_BYTES], expected[ENDPOINT_TEXT_BYTES];
        snprintf(expected, sizeof(expected), "10.0.0.%zu:8000", i + 1);
        assert_true(str_is(endpoint_address_print(&endpoint->address, text), expected));
        assert_true(str_is(endpoint->name.pod, names[i]));
        assert_true(str_is(endpoint->name.text, names[i]));
        assert_true(str_is(endpoint->name.name_space, "default"));
    }
    assert_true(str_is(pool_labels_find(spec->endpoints[1].labels, STR("k"))->value, "v"));
    pool_specs_free(&specs);
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
        cmocka_unit_test(pool_watch_fallback_replaces_setting_of_pool),
        cmocka_unit_test(pool_watch_endpoints_file_is_followed),
        cmocka_unit_test(pool_watch_endpoints_file_is_read_once_unless_watched),
        cmocka_unit_test(pool_watch_refused_config_keeps_endpoints_file),
        cmocka_unit_test(pool_watch_config_without_endpoints_file_ends_its_watch),
        cmocka_unit_test(pool_watch_changed_config_keeps_text_of_endpoints_file),
        cmocka_unit_test(pool_watch_endpoints_file_entry_has_unknown_members_or_no_name),
        cmocka_unit_test(pool_watch_invalid_start_fails),
    };
    return cmocka_run_group_tests_name("pick/discovery/file/pool_watch", tests, NULL, NULL);
}
