/* Server metadata: decoded members, and errors with their path. */
#include "codec/kserve/metadata.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct json_limits limits = {
    .max_json_size = 4096, .max_json_depth = 10, .max_tensor_elements = 100};

static void v2_server_metadata_decode_rows_match(void **state) {
    (void)state;
    static const struct {
        const char *text, *name, *version, *last;
        size_t n;
    } rows[] = {
        {"{\"name\":\"sluice\",\"version\":\"0.1\",\"extensions\":[\"a\",\"binary_tensor_data\"]}",
         "sluice", "0.1", "binary_tensor_data", 2},
        {"{\"extensions\":[],\"x\":{\"y\":[1]},\"name\":\"\"}", "", "", NULL, 0},
        {"{\"name\":\"a\"}", "a", "", NULL, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_server_metadata server;
        struct error err = {0};
        if (v2_server_metadata_decode(arena, str_of(rows[i].text), &limits, &server, &err) !=
            ST_OK) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        assert_true(str_is(server.name, rows[i].name));
        assert_true(str_is(server.version, rows[i].version));
        assert_int_equal(server.n_extensions, rows[i].n);
        if (rows[i].n > 0) {
            assert_true(str_is(server.extensions[rows[i].n - 1], rows[i].last));
        }
        arena_free(arena);
    }
}

static void v2_server_metadata_decode_invalid_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", ""},
        {"[]", "object"},
        {"{}", "name"},
        {"{\"name\":1}", "name"},
        {"{\"name\":\"a\",\"version\":2}", "version"},
        {"{\"name\":\"a\",\"extensions\":{}}", "extensions"},
        {"{\"name\":\"a\",\"extensions\":[\"b\",3]}", "extensions[1]"},
        {"{\"name\":\"a\"", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_server_metadata server;
        struct error err = {0};
        assert_int_not_equal(
            v2_server_metadata_decode(arena, str_of(rows[i].text), &limits, &server, &err), ST_OK);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].text, err.text, rows[i].says);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_server_metadata_decode_rows_match),
        cmocka_unit_test(v2_server_metadata_decode_invalid_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
