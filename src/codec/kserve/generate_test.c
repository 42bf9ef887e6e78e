/* Requests and responses of generate: each row is a body and its meaning for a model, or its
 * error; and responses to the byte. */
#include "codec/kserve/generate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

enum { MAX_BYTES = 1 << 16 };

static const int64_t ONE[] = {1}, FREE[] = {-1}, TWO_FREE[] = {2, -1}, FREES[] = {-1, -1, 3};
static const int64_t EMPTY[] = {-1, 0}, FOUR[] = {2, 2};

static const struct tensor_spec INPUTS[] = {
    {.name = STR("text"), .datatype = DT_BYTES, .shape = {ONE, 1}},
    {.name = STR("x"), .datatype = DT_FP32, .shape = {FREE, 1}},
    {.name = STR("m"), .datatype = DT_INT32, .shape = {TWO_FREE, 2}},
    {.name = STR("b"), .datatype = DT_UINT8, .shape = {FREES, 3}},
    {.name = STR("yes"), .datatype = DT_BOOL, .shape = {FREE, 1}},
    {.name = STR("half"), .datatype = DT_FP16, .shape = {FREE, 1}},
    {.name = STR("four"), .datatype = DT_INT8, .shape = {FOUR, 2}},
    {.name = STR("none"), .datatype = DT_INT8, .shape = {EMPTY, 2}},
    {.name = STR("scalar"), .datatype = DT_INT8, .shape = {NULL, 0}},
};

static const struct model_spec MODEL = {
    .name = STR("m\"odel"),
    .version = 3,
    .version_text = STR("3"),
    .inputs = INPUTS,
    .n_inputs = sizeof(INPUTS) / sizeof(INPUTS[0]),
};

/* Inputs named like the parameters object, and like the id. */
static const struct tensor_spec AWKWARD_INPUTS[] = {
    {.name = STR("parameters"), .datatype = DT_INT8, .shape = {FREE, 1}},
    {.name = STR("id"), .datatype = DT_INT8, .shape = {FREE, 1}},
};
static const struct model_spec AWKWARD = {
    .name = STR("a"), .version_text = STR("1"), .inputs = AWKWARD_INPUTS, .n_inputs = 2};

static enum status decode(struct arena *arena, struct str body, const struct model_spec *model,
                          uint64_t max_bytes, struct infer_request *out, struct error *err) {
    enum v2_non_finite non_finite;
    return v2_generate_decode(arena, body, model, &fixture_limits, max_bytes, out, &non_finite,
                              err);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const struct good {
    const char *body;
    const char *meaning;
    const struct model_spec *model; /* NULL: MODEL */
} GOOD[] = {
    {"{}", "", NULL},
    {"{\"text\":\"hi\"}", "; text BYTES[1] 020000006869", NULL},
    {"{\"text\":[\"hi\"]}", "; text BYTES[1] 020000006869", NULL},
    {"{\"text\":\"\"}", "; text BYTES[1] 00000000", NULL},
    {"{\"x\":1}", "; x FP32[1] 0000803f", NULL},
    {"{\"x\":[1,2]}", "; x FP32[2] 0000803f00000040", NULL},
    {"{\"x\":[]}", "; x FP32[0] ", NULL},
    {"{\"m\":[1,2,3,4]}", "; m INT32[2,2] 01000000020000000300000004000000", NULL},
    {"{\"b\":[1,2,3,4,5,6]}", "; b UINT8[1,2,3] 010203040506", NULL},
    {"{\"four\":[1,2,3,4]}", "; four INT8[2,2] 01020304", NULL},
    {"{\"scalar\":7}", "; scalar INT8[] 07", NULL},
    {"{\"yes\":[true,false]}", "; yes BOOL[2] 0100", NULL},
    {"{\"x\":1,\"text\":\"a\"}", "; x FP32[1] 0000803f; text BYTES[1] 0100000061", NULL},
    {"{\"p\":1,\"q\":\"s\",\"r\":true,\"f\":1.5}", " p=i1 q=\"s\" r=true f=d1.5", NULL},
    {"{\"n\":-1,\"u\":18446744073709551615}", " n=i-1 u=u18446744073709551615", NULL},
    {"{\"parameters\":{\"p\":1,\"x\":2}}", " p=i1; x FP32[1] 00000040", NULL},
    {"{\"parameters\":{}}", "", NULL},
    {"{\"p\":1,\"parameters\":{\"p\":2}}", " p=i1", NULL},
    {"{\"p\":1,\"p\":2}", " p=i1", NULL},
    {"{\"id\":\"one\"}", "id=one id=\"one\"", NULL},
    {"{\"id\":\"one\",\"parameters\":{\"id\":\"two\"}}", "id=one id=\"one\"", NULL},
    {"{\"sequence_id\":1,\"priority\":2,\"timeout\":3}", " sequence_id=i1 priority=i2 timeout=i3",
     NULL},
    {"{\"x\":NaN}", "; x FP32[1] 0000c07f", NULL},
    /* null: as if absent */
    {"{\"id\":null,\"x\":null,\"p\":null,\"parameters\":null}", "", NULL},
    {"{\"x\":null,\"parameters\":{\"x\":1,\"id\":null,\"q\":null}}", "; x FP32[1] 0000803f", NULL},
    {"{\"parameters\":[1,2],\"id\":3}", "; parameters INT8[2] 0102; id INT8[1] 03", &AWKWARD},
};

static void v2_generate_decode_rows_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request = {0};
        struct error err;
        const struct model_spec *model = GOOD[i].model ? GOOD[i].model : &MODEL;
        if (decode(arena, str_of(GOOD[i].body), model, MAX_BYTES, &request.infer, &err) != ST_OK) {
            fail_msg("%s: %s", GOOD[i].body, err.text);
        }
        const char *meaning = fixture_request(arena, &request);
        if (strcmp(meaning, GOOD[i].meaning) != 0) {
            fail_msg("%s: expected \"%s\", got \"%s\"", GOOD[i].body, GOOD[i].meaning, meaning);
        }
        assert_true(request.infer.params_are_opaque);
        arena_free(arena);
    }
}

static const struct bad {
    const char *body;
    enum status status;
    const char *words[2]; /* parts of the error text */
} BAD[] = {
    {"", ST_BAD_JSON, {"the request"}},
    {"{", ST_BAD_JSON, {NULL}},
    {"[]", ST_BAD_FIELD, {"object"}},
    {"3", ST_BAD_FIELD, {"object"}},
    {"{\"x\":[null]}", ST_BAD_FIELD, {"x[0]", NULL}},
    {"{\"x\":{}}", ST_BAD_FIELD, {"x", "element"}},
    {"{\"x\":[[1]]}", ST_BAD_FIELD, {"x", "flat"}},
    {"{\"x\":[1,{}]}", ST_BAD_FIELD, {"x[1]", "flat"}},
    {"{\"x\":\"a\"}", ST_BAD_FIELD, {"x"}},
    {"{\"x\":[1,true]}", ST_BAD_FIELD, {"x"}},
    {"{\"x\":1,\"x\":1}", ST_BAD_INPUTS, {"x", "duplicate input"}},
    {"{\"x\":1,\"parameters\":{\"x\":1}}", ST_BAD_INPUTS, {"parameters.x", "duplicate input"}},
    {"{\"text\":[\"a\",\"b\"]}", ST_BAD_DATA, {"2 elements", "[1]"}},
    {"{\"text\":[]}", ST_BAD_DATA, {"0 elements", "[1]"}},
    {"{\"m\":[1,2,3]}", ST_BAD_DATA, {"3 elements", "[2,-1]"}},
    {"{\"b\":[1,2]}", ST_BAD_DATA, {"2 elements", "[-1,-1,3]"}},
    {"{\"b\":1}", ST_BAD_DATA, {"1 element ", "[-1,-1,3]"}},
    {"{\"none\":1}", ST_BAD_DATA, {"[-1,0]", NULL}},
    {"{\"none\":[]}", ST_BAD_DATA, {"[-1,0]", NULL}},
    {"{\"scalar\":[1,2]}", ST_BAD_DATA, {"2 elements", "[]"}},
    {"{\"half\":1}", ST_BAD_FIELD, {"FP16", "infer does"}},
    {"{\"four\":[1,2,3,300]}", ST_BAD_FIELD, {"four", "300"}},
    {"{\"yes\":2}", ST_BAD_FIELD, {"yes", NULL}},
    {"{\"p\":[1]}", ST_BAD_FIELD, {"p", NULL}},
    {"{\"p\":{}}", ST_BAD_FIELD, {"p", NULL}},
    {"{\"p\":NaN}", ST_BAD_FIELD, {"NaN", NULL}},
    {"{\"parameters\":1}", ST_BAD_FIELD, {"parameters", "object"}},
    {"{\"parameters\":{\"parameters\":{}}}", ST_BAD_FIELD, {"parameters.parameters", NULL}},
    {"{\"id\":1}", ST_BAD_FIELD, {"id", "string"}},
    {"{\"triton_x\":1}", ST_BAD_FIELD, {"triton_", "reserved"}},
};

static void v2_generate_decode_invalid_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_request request;
        struct error err = {0};
        enum status st = decode(arena, str_of(BAD[i].body), &MODEL, MAX_BYTES, &request, &err);
        if (st != BAD[i].status) {
            fail_msg("%s: expected %s, got %s: %s", BAD[i].body, status_name(BAD[i].status),
                     status_name(st), err.text);
        }
        for (size_t k = 0; k < 2 && BAD[i].words[k]; k++) {
            if (!strstr(err.text, BAD[i].words[k])) {
                fail_msg("%s: \"%s\" is not in \"%s\"", BAD[i].body, BAD[i].words[k], err.text);
            }
        }
        arena_free(arena);
    }
}

static void v2_generate_decode_over_max_bytes_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct infer_request request;
    struct error err;
    struct str body = STR("{\"x\":[1,2],\"m\":[1,2]}");
    (void)state;
    assert_int_equal(decode(arena, body, &MODEL, 16, &request, &err), ST_OK);
    assert_int_equal(decode(arena, body, &MODEL, 15, &request, &err), ST_BODY_TOO_LARGE);
    assert_non_null(strstr(err.text, "--max-body-size"));
    arena_free(arena);
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct tensor tensor_of(const char *name, enum datatype datatype, struct shape shape,
                               const struct piece *piece) {
    return (struct tensor){.name = str_of(name),
                           .datatype = datatype,
                           .shape = shape,
                           .pieces = piece,
                           .n_pieces = piece->n_bytes > 0 ? 1 : 0,
                           .n_bytes = piece->n_bytes};
}

static struct str print(struct arena *arena, struct str id, const struct infer_response *response,
                        enum status expected) {
    struct buf out;
    struct error err;
    buf_init(&out, arena, 0);
    assert_int_equal(v2_generate_print(&out, &MODEL, id, response, V2_NON_FINITE_WORDS, &err),
                     expected);
    return buf_str(&out);
}

static void assert_text(struct str text, const char *expected) {
    if (!str_is(text, expected)) {
        fail_msg("expected %s, got %.*s", expected, STR_ARG(text));
    }
}

static void v2_generate_print_responses_match(void **state) {
    static const float numbers[] = {1.5f, -2};
    static const int64_t two[] = {1, 2}, none[] = {0};
    static const unsigned char word[] = "\x02\0\0\0hi";
    static const struct piece floats = {numbers, sizeof(numbers)}, text = {word, 6},
                              nothing = {NULL, 0};
    struct arena *arena = arena_new(NULL, 0);
    struct tensor outputs[] = {
        tensor_of("text", DT_BYTES, (struct shape){ONE, 1}, &text),
        tensor_of("numbers", DT_FP32, (struct shape){two, 2}, &floats),
        tensor_of("empty", DT_FP32, (struct shape){none, 1}, &nothing),
    };
    struct param params[] = {
        {.name = STR("p"), .kind = PARAM_INT64, .int64 = 7},
        {.name = STR("numbers"), .kind = PARAM_BOOL}, /* an output has that name */
        {.name = STR("model_name"), .kind = PARAM_BOOL, .boolean = true},
    };
    struct infer_response response = {.outputs = outputs, .n_outputs = 3, .params = {params, 2}};
    (void)state;
    assert_text(print(arena, STR(""), &response, ST_OK),
                "{\"empty\":[],\"model_name\":\"m\\\"odel\",\"model_version\":\"3\","
                "\"numbers\":[1.5,-2.0],\"p\":7,\"text\":\"hi\"}");
    response.params.n = 3;
    response.n_outputs = 0;
    assert_text(print(arena, STR("\n"), &response, ST_OK),
                "{\"id\":\"\\n\",\"model_name\":true,\"model_version\":\"3\",\"numbers\":false,"
                "\"p\":7}");
    response.params.n = 0;
    assert_text(print(arena, STR(""), &response, ST_OK),
                "{\"model_name\":\"m\\\"odel\",\"model_version\":\"3\"}");
    arena_free(arena);
}

static void v2_generate_print_not_utf8_is_refused(void **state) {
    static const unsigned char broken[] = "\x02\0\0\0\xff\xfe";
    static const struct piece piece = {broken, 6};
    struct arena *arena = arena_new(NULL, 0);
    struct tensor output = tensor_of("text", DT_BYTES, (struct shape){ONE, 1}, &piece);
    struct param param = {.name = STR("\xff"), .kind = PARAM_BOOL};
    struct infer_response response = {.outputs = &output, .n_outputs = 1};
    (void)state;
    print(arena, STR(""), &response, ST_BAD_OUTPUT);
    response = (struct infer_response){.params = {&param, 1}};
    print(arena, STR(""), &response, ST_BAD_OUTPUT);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_generate_decode_rows_match),
        cmocka_unit_test(v2_generate_decode_invalid_is_refused),
        cmocka_unit_test(v2_generate_decode_over_max_bytes_is_refused),
        cmocka_unit_test(v2_generate_print_responses_match),
        cmocka_unit_test(v2_generate_print_not_utf8_is_refused),
    };
    return cmocka_run_group_tests_name("codec/kserve/generate", tests, NULL, NULL);
}
