/* Client requests: the exact JSON and pieces, decoded again by the server's half. */
#include "codec/kserve/request_encode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

static const int64_t two[] = {2};
static const struct piece ab = {"ab", 2}, text = {"\1\0\0\0a\0\0\0\0", 9};
static const struct param one_param = {.name = {"p", 1}, .kind = PARAM_INT64, .int64 = 1};

static struct infer_input inputs[] = {
    {.tensor = {.name = {"a", 1},
                .datatype = DT_UINT8,
                .shape = {two, 1},
                .pieces = &ab,
                .n_pieces = 1,
                .n_bytes = 2}},
    {.tensor = {.name = {"s", 1},
                .datatype = DT_BYTES,
                .shape = {two, 1},
                .pieces = &text,
                .n_pieces = 1,
                .n_bytes = 9},
     .params = {&one_param, 1}},
};
static struct infer_requested_output wanted[] = {{.name = {"y", 1}},
                                                 {.name = {"z", 1}, .params = {&one_param, 1}}};

static void v2_request_encode_rows_match(void **state) {
    static const enum v2_form json_json[] = {V2_FORM_JSON, V2_FORM_JSON};
    static const enum v2_form json_binary[] = {V2_FORM_JSON, V2_FORM_BINARY};
    static const enum v2_form binary_default[] = {V2_FORM_BINARY, V2_FORM_DEFAULT};
    static const struct {
        const char *id;
        size_t n_params, n_inputs, n_wanted;
        bool binary_default;
        const enum v2_form *input_forms, *wanted_forms;
        const char *json;
        struct str tail;
        bool binary;
        const char *meaning;
    } rows[] = {
        {"",
         0,
         1,
         0,
         false,
         NULL,
         NULL,
         "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":[2],"
         "\"parameters\":{\"binary_data_size\":2}}]}",
         {"ab", 2},
         true,
         "; a UINT8[2] 6162"},
        {"i",
         1,
         2,
         2,
         true,
         json_json,
         binary_default,
         "{\"id\":\"i\",\"parameters\":{\"binary_data_output\":true,\"p\":1},"
         "\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":[2],\"data\":[97,98]},"
         "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[2],\"parameters\":{\"p\":1},"
         "\"data\":[\"a\",\"\"]}],"
         "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}},"
         "{\"name\":\"z\",\"parameters\":{\"binary_data\":true,\"p\":1}}]}",
         {"", 0},
         false,
         "id=i binary p=i1; a UINT8[2] 6162; s BYTES[2] 010000006100000000 p=i1; y binary; z "
         "binary "
         "p=i1"},
        {"",
         1,
         2,
         1,
         false,
         json_binary,
         NULL,
         "{\"parameters\":{\"p\":1},\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":["
         "2],"
         "\"data\":[97,98]},{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[2],"
         "\"parameters\":{\"binary_data_size\":9,\"p\":1}}],"
         "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":false}}]}",
         {"\1\0\0\0a\0\0\0\0", 9},
         true,
         " p=i1; a UINT8[2] 6162; s BYTES[2] 010000006100000000 p=i1; y json"},
        {"", 0, 0, 0, false, NULL, NULL, "{\"inputs\":[]}", {"", 0}, false, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request = {.infer = {.id = str_of(rows[i].id),
                                               .params = {&one_param, rows[i].n_params},
                                               .inputs = inputs,
                                               .n_inputs = rows[i].n_inputs,
                                               .wanted = wanted,
                                               .n_wanted = rows[i].n_wanted},
                                     .binary_default = rows[i].binary_default,
                                     .forms = rows[i].wanted_forms};
        struct v2_request_body body;
        struct v2_request back;
        struct error err = {0};
        assert_int_equal(v2_request_encode(arena, &request, rows[i].input_forms, &body, &err),
                         ST_OK);
        if (!str_is(body.json, rows[i].json)) {
            fail_msg("row %zu: expected %s\ngot %.*s", i, rows[i].json, STR_ARG(body.json));
        }
        struct str all = fixture_gather(arena, body.pieces, body.n_pieces);
        assert_true(
            str_eq(str_make(all.ptr + body.json.len, all.len - body.json.len), rows[i].tail));
        assert_int_equal(body.n_bytes, all.len);
        assert_int_equal(body.binary, rows[i].binary);
        assert_int_equal(v2_request_decode(arena, all, body.json.len, &fixture_limits, &back, &err),
                         ST_OK);
        assert_string_equal(fixture_request(arena, &back), rows[i].meaning);
        arena_free(arena);
    }
}

/* Decoded again, and the JSON where the two parameters are. */
static void v2_request_encode_shared_memory_and_classes(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct infer_input region_inputs[] = {
        {.tensor = {.name = {"a", 1}, .datatype = DT_UINT8, .shape = {two, 1}},
         .region = {{"r", 1}, 0, 2}},
        {.tensor = {.name = {"b", 1},
                    .datatype = DT_UINT8,
                    .shape = {two, 1},
                    .pieces = &ab,
                    .n_pieces = 1,
                    .n_bytes = 2}},
        {.tensor = {.name = {"s", 1}, .datatype = DT_BYTES, .shape = {two, 1}},
         .region = {{"r", 1}, 7, 9}}};
    struct infer_requested_output outputs[] = {{.name = {"y", 1}, .region = {{"q", 1}, 3, 100}},
                                               {.name = {"z", 1}, .n_classes = 5}};
    const struct v2_request request = {
        .infer = {.inputs = region_inputs, .n_inputs = 3, .wanted = outputs, .n_wanted = 2},
        .binary_default = true};
    struct v2_request_body body;
    struct v2_request back;
    struct error err = {0};
    assert_int_equal(v2_request_encode(arena, &request, NULL, &body, &err), ST_OK);
    static const char *const WANTED[] = {
        "\"parameters\":{\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":2}},",
        "\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":9,"
        "\"shared_memory_offset\":7}",
        "{\"name\":\"y\",\"parameters\":{\"shared_memory_region\":\"q\","
        "\"shared_memory_byte_size\":100,\"shared_memory_offset\":3}}",
        "{\"name\":\"z\",\"parameters\":{\"binary_data\":true,\"classification\":5}}"};
    struct str all = fixture_gather(arena, body.pieces, body.n_pieces);
    for (size_t i = 0; i < sizeof(WANTED) / sizeof(*WANTED); i++) {
        assert_non_null(memmem(all.ptr, body.json.len, WANTED[i], strlen(WANTED[i])));
    }
    assert_int_equal(all.len, body.json.len + 2);
    assert_int_equal(v2_request_decode(arena, all, body.json.len, &fixture_limits, &back, &err),
                     ST_OK);
    assert_true(str_is(back.infer.inputs[2].region.name, "r"));
    assert_int_equal(back.infer.inputs[2].region.offset, 7);
    assert_true(v2_request_output_in_shared_memory(&back, 0));
    assert_int_equal(back.infer.wanted[1].n_classes, 5);
    assert_int_equal(
        v2_request_encode(arena, &request, v2_forms_all(arena, 3, V2_FORM_JSON), &body, &err),
        ST_OK);
    assert_int_equal(
        v2_request_decode(arena, body.json, body.json.len, &fixture_limits, &back, &err), ST_OK);
    arena_free(arena);
}

static void v2_request_encode_invalid_is_refused(void **state) {
    static const int64_t negative[] = {-1}, huge[] = {INT64_MAX, 2};
    static const struct piece bad_text = {"\1\0\0\0\xff", 5};
    static const struct {
        struct tensor tensor;
        bool json;
        enum status status;
        const char *sentence;
    } rows[] = {
        {{.name = {"a", 1},
          .datatype = DT_INT16,
          .shape = {two, 1},
          .pieces = &ab,
          .n_pieces = 1,
          .n_bytes = 2},
         false,
         ST_BAD_DATA,
         "input \"a\": 2 bytes don't fit INT16 of shape [2]"},
        {{.name = {"a", 1},
          .datatype = DT_INT16,
          .shape = {two, 1},
          .pieces = &ab,
          .n_pieces = 1,
          .n_bytes = 2},
         true,
         ST_BAD_DATA,
         "2 bytes don't fit INT16 of shape [2]"},
        {{.name = {"a", 1}, .datatype = DT_INT8, .shape = {negative, 1}},
         false,
         ST_BAD_SHAPE,
         "got shape [-1]"},
        {{.name = {"a", 1}, .datatype = DT_INT8, .shape = {huge, 2}},
         true,
         ST_BAD_SHAPE,
         "input \"a\": expected at most 64 dimensions of 0 or more and 2^63-1 elements"},
        {{.name = {"a", 1},
          .datatype = DT_BYTES,
          .shape = {two, 0},
          .pieces = &bad_text,
          .n_pieces = 1,
          .n_bytes = 5},
         true,
         ST_NOT_UTF8,
         "element 0 is not UTF-8"},
        {{.name = {"\xff", 1},
          .datatype = DT_INT8,
          .shape = {two, 1},
          .pieces = &ab,
          .n_pieces = 1,
          .n_bytes = 2},
         false,
         ST_BAD_DATA,
         "names of tensors in UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_input input = {.tensor = rows[i].tensor};
        struct v2_request request = {.infer = {.inputs = &input, .n_inputs = 1}};
        enum v2_form form = rows[i].json ? V2_FORM_JSON : V2_FORM_BINARY;
        struct v2_request_body body;
        struct error err = {0};
        enum status status = v2_request_encode(arena, &request, &form, &body, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_request_encode_rows_match),
        cmocka_unit_test(v2_request_encode_shared_memory_and_classes),
        cmocka_unit_test(v2_request_encode_invalid_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
