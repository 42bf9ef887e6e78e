/* The filter's configuration as arguments: in the order of their names, whatever Envoy's is. */
#include "program/envoy/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/must/must.h"

struct row {
    const char *config;
    const char *expected; /* the arguments, or a part of the error */
    bool is_error;
};

static const struct row ROWS[] = {
    {"{\"metrics\": \"none\", \"config\": \"a.yaml\"}", "pick\n--config\na.yaml\n--metrics\nnone\n",
     false},
    {"{\"config\": \"a.yaml\", \"metrics\": \"none\"}", "pick\n--config\na.yaml\n--metrics\nnone\n",
     false},
    {"metrics: none\nconfig: a.yaml\n", "pick\n--config\na.yaml\n--metrics\nnone\n", false},
    {"/etc/pool.yaml", "pick\n--config\n/etc/pool.yaml\n", false},
    {"\"/etc/pool.yaml\"", "pick\n--config\n/etc/pool.yaml\n", false},
    {"{endpoint: [\"10.0.0.1:1\", \"10.0.0.2:1\"], kube: true, tracing: false}",
     "pick\n--endpoint\n10.0.0.1:1\n--endpoint\n10.0.0.2:1\n--kube\n", false},
    {"{max-body-size: 1000000, fairness-id-metric-label-limit: 5.0}",
     "pick\n--fairness-id-metric-label-limit\n5\n--max-body-size\n1000000\n", false},
    {"", "expected the settings", true},
    {" \n", "expected the settings", true},
    {"{}", "expected the settings", true},
    {"[1, 2]", "filter_config", true},
    {"{config: {a: 1}}", "expected a text", true},
    {"{config: [[a]]}", "expected a text", true},
    {"{config", "not YAML", true},
    {"{grpc: \"127.0.0.1:1\"}", "grpc is a setting of `sluice pick` as a program", true},
    {"{leader-election: true}", "leader-election", true},
};

static void envoy_arguments_are_those_of_the_object(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct arena *arena = must_arena_new("a test");
        struct envoy_arguments arguments;
        struct error err = {.text = ""};
        enum status st = envoy_arguments_read(str_of(ROWS[i].config), arena, &arguments, &err);
        assert_int_equal(st, ROWS[i].is_error ? ST_BAD_CONFIG : ST_OK);
        if (ROWS[i].is_error) {
            assert_non_null(strstr(err.text, ROWS[i].expected));
        } else {
            assert_true(str_is(arguments.text, ROWS[i].expected));
        }
        arena_free(arena);
    }
}

static void envoy_settings_are_those_of_the_flags(void **state) {
    struct arena *arena = must_arena_new("a test");
    struct envoy_arguments arguments;
    struct pick_settings settings;
    struct error err;
    (void)state;
    assert_int_equal(
        envoy_arguments_read(STR("{endpoint: \"10.0.0.1:1\", max-body-size: 1KiB, metrics: none}"),
                             arena, &arguments, &err),
        ST_OK);
    assert_int_equal(envoy_settings_read(&arguments, &settings, &err), ST_OK);
    assert_int_equal(settings.max_body_size, 1024);
    assert_int_equal(settings.endpoints.n, 1);
    assert_string_equal(settings.metrics, "none");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envoy_arguments_are_those_of_the_object),
        cmocka_unit_test(envoy_settings_are_those_of_the_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
