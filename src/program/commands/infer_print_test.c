/* Responses as readable JSON: data nested by its shape, whole responses; and file names of outputs.
 */
#include "program/commands/infer_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void infer_print_data_is_nested_by_shape(void **state) {
    (void)state;
    static const struct {
        const char *flat;
        size_t rank;
        int64_t dims[4];
        const char *text;
    } rows[] = {
        {"[1,2,3]", 1, {3}, "[1, 2, 3]"},
        {"[1]", 0, {0}, "[1]"},
        {"[]", 1, {0}, "[]"},
        {"[]", 2, {3, 0}, "[]"},
        {"[1,2,3,4]", 2, {2, 2}, "[\n  [1, 2],\n  [3, 4]\n]"},
        {"[1,2]", 2, {2, 1}, "[\n  [1],\n  [2]\n]"},
        {"[1,2]", 3, {1, 1, 2}, "[\n  [\n    [1, 2]\n  ]\n]"},
        {"[1,2,3,4]",
         3,
         {2, 2, 1},
         "[\n  [\n    [1],\n    [2]\n  ],\n  [\n    [3],\n    [4]\n  ]\n]"},
        {"[\"a,b\",\"]\",\"\\\",\",\"\\\\\"]", 1, {4}, "[\"a,b\", \"]\", \"\\\",\", \"\\\\\"]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 0);
        struct json_writer json = {.out = &out, .layout = JSON_LINES};
        infer_data_write(&json, str_of(rows[i].flat), (struct shape){rows[i].dims, rows[i].rank});
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].text);
        arena_free(arena);
    }
}

static void infer_print_answer_is_json(void **state) {
    (void)state;
    static const int64_t dims[] = {1, 2};
    static const float data[] = {0.1f, -2.0f};
    static const struct piece piece = {data, sizeof(data)};
    static const struct param params[] = {
        {.name = {"a", 1}, .kind = PARAM_BOOL, .boolean = true},
        {.name = {"b", 1}, .kind = PARAM_INT64, .int64 = -5},
        {.name = {"c", 1}, .kind = PARAM_STRING, .string = {"x\"y", 3}},
        {.name = {"d", 1}, .kind = PARAM_DOUBLE, .number = 0.1},
    };
    struct tensor output = {.name = STR("y"),
                            .datatype = DT_FP32,
                            .shape = {dims, 2},
                            .pieces = &piece,
                            .n_pieces = 1,
                            .n_bytes = sizeof(data)};
    struct v2_client_response answer = {
        .id = STR("7"),
        .model_name = STR("m"),
        .model_version = STR("1"),
        .infer = {.params = {params, 4}, .outputs = &output, .n_outputs = 1}};
    struct arena *arena = arena_new(NULL, 0);
    struct error err = {0};
    struct buf out;
    buf_init(&out, arena, 0);
    assert_int_equal(infer_answer_print(&out, &answer, &err), ST_OK);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, "{\n"
                                  "  \"id\": \"7\",\n"
                                  "  \"model_name\": \"m\",\n"
                                  "  \"model_version\": \"1\",\n"
                                  "  \"parameters\": {\"a\": true, \"b\": -5, \"c\": \"x\\\"y\", "
                                  "\"d\": 0.1},\n"
                                  "  \"outputs\": [\n"
                                  "    {\n"
                                  "      \"name\": \"y\",\n"
                                  "      \"datatype\": \"FP32\",\n"
                                  "      \"shape\": [1, 2],\n"
                                  "      \"data\": [\n"
                                  "        [0.1, -2.0]\n"
                                  "      ]\n"
                                  "    }\n"
                                  "  ]\n"
                                  "}\n");
    arena_free(arena);
}

/* Bytes that are not UTF-8 have no JSON; the message has the remedy. */
static void infer_print_non_utf8_refused(void **state) {
    (void)state;
    static const int64_t dims[] = {1};
    static const struct piece piece = {"\1\0\0\0\xff", 5};
    struct tensor output = {.name = STR("y"),
                            .datatype = DT_BYTES,
                            .shape = {dims, 1},
                            .pieces = &piece,
                            .n_pieces = 1,
                            .n_bytes = 5};
    struct v2_client_response answer = {.infer = {.outputs = &output, .n_outputs = 1}};
    struct arena *arena = arena_new(NULL, 0);
    struct error err = {0};
    struct buf out;
    buf_init(&out, arena, 0);
    assert_int_equal(infer_answer_print(&out, &answer, &err), ST_NOT_UTF8);
    assert_non_null(strstr(err.text, "--format raw"));
    arena_free(arena);
}

static void infer_output_path_is_sanitized(void **state) {
    (void)state;
    static const struct {
        const char *name, *path;
    } rows[] = {
        {"y", "d/y.npy"},
        {"dense_1.out-2", "d/dense_1.out-2.npy"},
        {"../../etc/x", "d/_._.._etc_x.npy"},
        {"/a", "d/_a.npy"},
        {".hidden", "d/_hidden.npy"},
        {"-f", "d/_f.npy"},
        {"", "d/_.npy"},
        {"a b\n", "d/a_b_.npy"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        assert_string_equal(infer_output_path(arena, "d", str_of(rows[i].name), "npy"),
                            rows[i].path);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_print_data_is_nested_by_shape),
        cmocka_unit_test(infer_print_answer_is_json),
        cmocka_unit_test(infer_print_non_utf8_refused),
        cmocka_unit_test(infer_output_path_is_sanitized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
