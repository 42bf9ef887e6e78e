/* Responses: the exact JSON and pieces for each requested form, every datatype in both forms
 * decoded by the client's half, and invalid responses. */
#include "codec/kserve/response.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

static const struct model_spec model = {
    .name = {"m\"1", 3}, .version = 7, .version_text = {"7", 1}};

static const int64_t two[] = {2, 1};
static const int64_t none[] = {0};
static const struct piece two_pieces[] = {{"ab", 2}, {"", 0}};
static const struct piece empty_piece = {"", 0};

/* Two outputs: a UINT8[2,1] of bytes 97, 98 and b, an empty FP32. */
static struct tensor outputs[] = {
    {.name = {"a", 1},
     .datatype = DT_UINT8,
     .shape = {two, 2},
     .pieces = two_pieces,
     .n_pieces = 2,
     .n_bytes = 2},
    {.name = {"b", 1},
     .datatype = DT_FP32,
     .shape = {none, 1},
     .pieces = &empty_piece,
     .n_pieces = 1},
};

static const struct param params[] = {
    {.name = {"s", 1}, .kind = PARAM_STRING, .string = {"t\n", 2}},
    {.name = {"i", 1}, .kind = PARAM_INT64, .int64 = -5},
    {.name = {"u", 1}, .kind = PARAM_UINT64, .uint64 = UINT64_MAX},
    {.name = {"t", 1}, .kind = PARAM_BOOL, .boolean = true},
    {.name = {"f", 1}, .kind = PARAM_BOOL},
    {.name = {"d", 1}, .kind = PARAM_DOUBLE, .number = 123.123},
};

#define HEAD "{\"model_name\":\"m\\\"1\",\"model_version\":\"7\","
#define A_HEAD "{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":[2,1],"
#define B_HEAD "{\"name\":\"b\",\"datatype\":\"FP32\",\"shape\":[0],"

static void v2_response_encode_output_forms_match_rows(void **state) {
    static const struct {
        enum v2_form forms[2];
        size_t n_wanted, n_outputs, first;
        bool binary_default;
        const char *json;
        const char *binary; /* the bytes after it */
    } rows[] = {
        {{0},
         0,
         2,
         0,
         false,
         HEAD "\"outputs\":[" A_HEAD "\"data\":[97,98]}," B_HEAD "\"data\":[]}]}",
         ""},
        {{0},
         0,
         2,
         0,
         true,
         HEAD "\"outputs\":[" A_HEAD "\"parameters\":{\"binary_data_size\":2}}," B_HEAD
              "\"parameters\":{\"binary_data_size\":0}}]}",
         "ab"},
        /* only an empty output is binary: nothing follows the JSON */
        {{0},
         0,
         1,
         1,
         true,
         HEAD "\"outputs\":[" B_HEAD "\"parameters\":{\"binary_data_size\":0}}]}",
         ""},
        {{V2_FORM_BINARY, V2_FORM_DEFAULT},
         2,
         2,
         0,
         false,
         HEAD "\"outputs\":[" A_HEAD "\"parameters\":{\"binary_data_size\":2}}," B_HEAD
              "\"data\":[]}]}",
         "ab"},
        /* binary_data_output applies to listed outputs too, unless they have their own form */
        {{V2_FORM_JSON, V2_FORM_DEFAULT},
         2,
         2,
         0,
         true,
         HEAD "\"outputs\":[" A_HEAD "\"data\":[97,98]}," B_HEAD
              "\"parameters\":{\"binary_data_size\":0}}]}",
         ""},
        {{V2_FORM_DEFAULT},
         1,
         1,
         0,
         true,
         HEAD "\"outputs\":[" A_HEAD "\"parameters\":{\"binary_data_size\":2}}]}",
         "ab"},
        {{0}, 0, 0, 0, true, HEAD "\"outputs\":[]}", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_requested_output wanted[4] = {{.n_classes = 0}};
        assert_true(rows[i].n_wanted <= 4);
        struct v2_request request = {.infer.wanted = wanted,
                                     .infer.n_wanted = rows[i].n_wanted,
                                     .forms = rows[i].forms,
                                     .binary_default = rows[i].binary_default};
        struct infer_response response = {.outputs = outputs + rows[i].first,
                                          .n_outputs = rows[i].n_outputs};
        struct v2_response out;
        struct error err = {0};
        assert_int_equal(v2_response_encode(arena, &model, &request, &response, &out, &err), ST_OK);
        if (!str_is(out.json, rows[i].json)) {
            fail_msg("row %zu: expected %s\ngot %.*s", i, rows[i].json, STR_ARG(out.json));
        }
        struct str all = fixture_gather(arena, out.pieces, out.n_pieces);
        struct str tail = str_make(all.ptr + out.json.len, all.len - out.json.len);
        assert_true(str_is(tail, rows[i].binary));
        assert_int_equal(out.n_bytes, all.len);
        assert_int_equal(out.binary, rows[i].binary[0] != '\0');
        if (out.binary) { /* the output's own bytes, not a copy */
            assert_ptr_equal(out.pieces[1].data, two_pieces[0].data);
        }
        arena_free(arena);
    }
}

static void v2_response_encode_id_and_parameters_match(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_request request = {.infer.id = STR("a\"\0b")};
    struct infer_response response = {.params = {params, 6}};
    struct v2_response out;
    struct error err = {0};
    (void)state;
    assert_int_equal(v2_response_encode(arena, &model, &request, &response, &out, &err), ST_OK);
    static const char want[] =
        "{\"id\":\"a\\\"\\u0000b\",\"model_name\":\"m\\\"1\",\"model_version\":\"7\","
        "\"parameters\":{\"s\":\"t\\n\",\"i\":-5,\"u\":18446744073709551615,\"t\":true,"
        "\"f\":false,\"d\":123.123},\"outputs\":[]}";
    if (!str_is(out.json, want)) {
        fail_msg("expected %s\ngot %.*s", want, STR_ARG(out.json));
    }
    struct v2_client_response answer;
    assert_int_equal(
        v2_response_decode(arena, out.json, out.json.len, false, &fixture_limits, &answer, &err),
        ST_OK);
    assert_int_equal(answer.id.len, 4);
    assert_true(str_is(answer.model_version, "7"));
    struct buf got;
    buf_init(&got, arena, 0);
    fixture_params(&got, answer.infer.params);
    assert_true(str_is(buf_str(&got), " s=\"t\n\" i=i-5 u=u18446744073709551615 t=true f=false "
                                      "d=d123.123"));
    arena_free(arena);
}

static void v2_response_encode_invalid_output_is_refused(void **state) {
    static const int64_t one[] = {1};
    static const struct piece bad_text = {"\2\0\0\0\xc3(", 6}, three = {"abc", 3};
    static struct tensor text = {.name = {"t", 1},
                                 .datatype = DT_BYTES,
                                 .shape = {one, 1},
                                 .pieces = &bad_text,
                                 .n_pieces = 1,
                                 .n_bytes = 6};
    static struct tensor odd = {.name = {"o", 1},
                                .datatype = DT_INT16,
                                .shape = {one, 1},
                                .pieces = &three,
                                .n_pieces = 1,
                                .n_bytes = 3};
    static const struct param nan_param = {.name = {"n", 1}, .kind = PARAM_DOUBLE, .number = NAN};
    static const struct param text_param = {
        .name = {"x", 1}, .kind = PARAM_STRING, .string = {"\xff", 1}};
    static const struct param name_param = {.name = {"\xff", 1}, .kind = PARAM_BOOL};
    static const struct {
        struct infer_response response;
        bool binary;
        const char *sentence; /* NULL: valid */
        enum status status;
    } rows[] = {
        {{.outputs = &text, .n_outputs = 1},
         false,
         "tensor \"t\": element 0 is not UTF-8 (byte 0 of 2), which JSON can't carry; the "
         "parameter "
         "\"binary_data\": true asks for it as bytes",
         ST_NOT_UTF8},
        {{.outputs = &text, .n_outputs = 1}, true, NULL, ST_OK},
        {{.outputs = &odd, .n_outputs = 1},
         false,
         "\"o\": 3 bytes don't fit INT16 of shape [1]",
         ST_BAD_OUTPUT},
        {{.outputs = &odd, .n_outputs = 1},
         true,
         "\"o\": 3 bytes don't fit INT16 of shape [1]",
         ST_BAD_OUTPUT},
        {{.params = {&nan_param, 1}},
         false,
         "parameter \"n\": JSON can't represent nan",
         ST_BAD_OUTPUT},
        {{.params = {&text_param, 1}},
         false,
         "parameter \"x\": its text is not UTF-8",
         ST_BAD_OUTPUT},
        {{.params = {&name_param, 1}},
         false,
         "the name of parameter 0 is not UTF-8",
         ST_BAD_OUTPUT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request = {.binary_default = rows[i].binary};
        struct v2_response out;
        struct error err = {0};
        enum status status =
            v2_response_encode(arena, &model, &request, &rows[i].response, &out, &err);
        enum status want = rows[i].sentence ? rows[i].status : ST_OK;
        if (status != want || err.status != want ||
            (rows[i].sentence && !strstr(err.text, rows[i].sentence))) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

/* ---- encoded and decoded --------------------------------------------------------------------- */

/* Bytes that are valid for every datatype: small positive numbers, or 0 and 1. */
static struct tensor make_tensor(struct arena *arena, enum datatype datatype, size_t n,
                                 int64_t *dims) {
    size_t size = datatype_size(datatype);
    unsigned char *data = arena_alloc(arena, n * (size + 6));
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (datatype == DT_BYTES) {
            unsigned char element[] = {2, 0, 0, 0, 0, (unsigned char)('a' + i % 26)};
            memcpy(data + n_bytes, element, sizeof(element));
            n_bytes += sizeof(element);
        } else {
            memset(data + n_bytes, datatype == DT_BOOL ? (int)(i % 2) : (int)(i % 0x7b), size);
            n_bytes += size;
        }
    }
    struct piece *pieces = arena_alloc(arena, 2 * sizeof(*pieces));
    pieces[0] = (struct piece){data, n_bytes / 2};
    pieces[1] = (struct piece){data + n_bytes / 2, n_bytes - n_bytes / 2};
    dims[0] = (int64_t)n;
    return (struct tensor){.name = STR("x"),
                           .datatype = datatype,
                           .shape = {dims, 1},
                           .pieces = pieces,
                           .n_pieces = 2,
                           .n_bytes = n_bytes};
}

static void v2_response_each_datatype_roundtrips(void **state) {
    static const size_t counts[] = {0, 1, 2, 100, 3000};
    (void)state;
    for (int datatype = DT_BOOL; datatype < DT_COUNT_; datatype++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            for (int binary = 0; binary < 2; binary++) {
                struct arena *arena = arena_new(NULL, 0);
                int64_t dims[1];
                struct tensor tensor = make_tensor(arena, (enum datatype)datatype, counts[c], dims);
                struct infer_response response = {.outputs = &tensor, .n_outputs = 1};
                struct v2_request request = {.binary_default = binary};
                struct v2_response out;
                struct v2_client_response answer;
                struct error err = {0};
                assert_int_equal(v2_response_encode(arena, &model, &request, &response, &out, &err),
                                 ST_OK);
                struct str body = fixture_gather(arena, out.pieces, out.n_pieces);
                if (v2_response_decode(arena, body, out.json.len, false, &fixture_limits, &answer,
                                       &err) != ST_OK) {
                    fail_msg("%s: %s", datatype_name((enum datatype)datatype), err.text);
                }
                assert_int_equal(answer.infer.n_outputs, 1);
                assert_int_equal(answer.forms[0], binary ? V2_FORM_BINARY : V2_FORM_JSON);
                const struct tensor *got = &answer.infer.outputs[0];
                assert_int_equal(got->datatype, tensor.datatype);
                assert_true(shape_eq(got->shape, tensor.shape));
                assert_true(str_eq(fixture_gather(arena, got->pieces, got->n_pieces),
                                   fixture_gather(arena, tensor.pieces, tensor.n_pieces)));
                arena_free(arena);
            }
        }
    }
}

static void v2_response_decode_truncated_body_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct tensor tensors[2];
    int64_t dims[2][1];
    (void)state;
    tensors[0] = make_tensor(arena, DT_INT32, 3, dims[0]);
    tensors[1] = make_tensor(arena, DT_BYTES, 2, dims[1]);
    struct infer_response response = {.outputs = tensors, .n_outputs = 2};
    struct v2_request request = {.binary_default = true};
    struct v2_response out;
    struct v2_client_response answer;
    struct error err = {0};
    assert_int_equal(v2_response_encode(arena, &model, &request, &response, &out, &err), ST_OK);
    struct str body = fixture_gather(arena, out.pieces, out.n_pieces);
    for (size_t n = 0; n < body.len; n++) {
        char *cut = malloc(n + (n == 0));
        memcpy(cut, body.ptr, n);
        enum status status = v2_response_decode(arena, str_make(cut, n), out.json.len, false,
                                                &fixture_limits, &answer, &err);
        assert_int_equal(status, ST_BAD_FRAMING);
        free(cut);
    }
    assert_int_equal(
        v2_response_decode(arena, body, out.json.len, false, &fixture_limits, &answer, &err),
        ST_OK);
    arena_free(arena);
}

static void v2_response_decode_foreign_rows_match(void **state) {
    static const struct {
        const char *json;
        struct str binary;
        enum status status;
        const char *says; /* the meaning, or a part of the error text */
    } rows[] = {
        {"{\"outputs\":[]}", {"", 0}, ST_OK, "/"},
        {"{\"model_name\":\"m\",\"id\":\"i\",\"outputs\":[{\"name\":\"a\",\"shape\":[2],"
         "\"datatype\":"
         "\"FP32\",\"data\":[NaN,[1]],\"parameters\":{\"q\":[],\"binary_data\":true}}]}",
         {"", 0},
         ST_OK,
         "id=i m/; json a FP32[2] 0000c07f0000803f"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"BYTES\",\"parameters\":"
         "{\"binary_data_size\":5}}]}",
         {"\1\0\0\0x", 5},
         ST_OK,
         "/; binary a BYTES[1] 0100000078"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"BYTES\",\"parameters\":"
         "{\"binary_data_size\":5}}]}",
         {"\2\0\0\0x", 5},
         ST_BAD_DATA,
         "element 0 at byte 0 has a length of 2 bytes, 1 are left"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[2],\"datatype\":\"BYTES\",\"parameters\":"
         "{\"binary_data_size\":5}}]}",
         {"\1\0\0\0x", 5},
         ST_BAD_DATA,
         "expected 2 BYTES elements"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[2],\"datatype\":\"FP16\",\"parameters\":"
         "{\"binary_data_size\":5}}]}",
         {"12345", 5},
         ST_BAD_DATA,
         "outputs[0]: expected 4 bytes for FP16 of shape [2], got 5"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[2],\"datatype\":\"INT8\",\"parameters\":"
         "{\"binary_data_size\":2}}]}",
         {"123", 3},
         ST_BAD_FRAMING,
         "the answer: expected 2 bytes after the JSON"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[2],\"datatype\":\"INT8\",\"data\":[1]}]}",
         {"", 0},
         ST_BAD_DATA,
         "outputs[0].data: expected 2 elements"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"INT8\"}]}",
         {"", 0},
         ST_BAD_FIELD,
         "outputs[0].data: missing"},
        {"{\"error\":\"x\"}",
         {"", 0},
         ST_BAD_FIELD,
         "outputs: missing; expected an array of tensors"},
        {"{\"outputs\":{}}", {"", 0}, ST_BAD_FIELD, "outputs: expected an array"},
        {"{\"outputs\":[],\"id\":1}", {"", 0}, ST_BAD_FIELD, "id: expected a string"},
        {"{\"outputs\":[],\"model_version\":1}", {"", 0}, ST_BAD_FIELD, "model_version: expected"},
        {"{\"outputs\":[],\"parameters\":1}",
         {"", 0},
         ST_BAD_FIELD,
         "parameters: expected an object"},
        {"{\"outputs\":[],\"x\":NaN}", {"", 0}, ST_BAD_FIELD, "x: expected a finite number"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]},"
         "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"FP64\",\"data\":[Infinity]}]}",
         {"", 0},
         ST_OK,
         "/; json a INT8[1] 01; json b FP64[1] 000000000000f07f"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[5],\"datatype\":\"FP16\",\"data\":"
         "[null,\"NaN\",\"Infinity\",\"-Infinity\",1]}]}",
         {"", 0},
         ST_OK,
         "/; json a FP16[5] 007e007e007c00fc003c"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[\"nan\"]}]}",
         {"", 0},
         ST_BAD_FIELD,
         "outputs[0].data[0]: expected a number within the range of FP32, got a string \"nan\""},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"INT32\",\"data\":[null]}]}",
         {"", 0},
         ST_BAD_FIELD,
         "outputs[0].data[0]: expected a whole number"},
        {"{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"FP32\"}],"
         "\"id\":\"NaN\",\"x\":NaN}",
         {"", 0},
         ST_BAD_FIELD,
         "outputs[0].data: missing"},
        {"<html>", {"", 0}, ST_BAD_JSON, "the answer: malformed JSON at byte 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_client_response answer;
        struct error err = {0};
        struct buf body;
        buf_init(&body, arena, 0);
        buf_add_str(&body, str_of(rows[i].json));
        buf_add_str(&body, rows[i].binary);
        enum status status = v2_response_decode(arena, buf_str(&body), strlen(rows[i].json), false,
                                                &fixture_limits, &answer, &err);
        const char *says = status == ST_OK ? fixture_response(arena, &answer) : err.text;
        if (status != rows[i].status || !strstr(says, rows[i].says)) {
            fail_msg("%s: expected %s %s, got %s %s", rows[i].json, status_name(rows[i].status),
                     rows[i].says, status_name(status), says);
        }
        arena_free(arena);
    }
}

/* An output in shared memory. */
static void v2_response_output_may_lack_data(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    const struct str body =
        STR("{\"outputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"INT8\","
            "\"parameters\":{\"shared_memory_region\":\"r\"}},"
            "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}]}");
    struct v2_client_response answer;
    struct error err = {0};
    assert_int_equal(
        v2_response_decode(arena, body, body.len, true, &fixture_limits, &answer, &err), ST_OK);
    assert_true(answer.forms[0] == V2_FORM_DEFAULT && answer.forms[1] == V2_FORM_JSON);
    assert_int_equal(answer.infer.outputs[0].n_pieces, 0);
    assert_int_equal(
        v2_response_decode(arena, body, body.len, false, &fixture_limits, &answer, &err),
        ST_BAD_FIELD);
    arena_free(arena);
}

static void v2_response_out_of_memory_is_reported(void **state) {
    bool failed = false, succeeded = false;
    (void)state;
    for (size_t limit = 4096; limit < 40000; limit += 16) {
        struct arena *arena = arena_new(NULL, limit);
        struct v2_request request = {.binary_default = false};
        struct infer_response response = {
            .outputs = outputs, .n_outputs = 2, .params = {params, 6}};
        struct v2_response out;
        struct error err = {0};
        bool filled = arena_alloc(arena, 1900) && arena_alloc(arena, 1900);
        enum status status = v2_response_encode(arena, &model, &request, &response, &out, &err);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        failed |= !filled || status == ST_NO_MEMORY;
        succeeded |= filled && status == ST_OK;
        arena_free(arena);
    }
    assert_true(failed && succeeded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_response_encode_output_forms_match_rows),
        cmocka_unit_test(v2_response_encode_id_and_parameters_match),
        cmocka_unit_test(v2_response_encode_invalid_output_is_refused),
        cmocka_unit_test(v2_response_each_datatype_roundtrips),
        cmocka_unit_test(v2_response_decode_truncated_body_is_refused),
        cmocka_unit_test(v2_response_decode_foreign_rows_match),
        cmocka_unit_test(v2_response_output_may_lack_data),
        cmocka_unit_test(v2_response_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
