/* The request made of the arguments of `sluice infer`: tensors, parameters, and errors of the
 * arguments. */
#include "program/commands/infer_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const int64_t rows_of_2[] = {-1, 2}, rows_of_1[] = {-1, 1};
static const struct tensor_spec inputs[] = {
    {.name = {"image", 5}, .datatype = DT_FP32, .shape = {rows_of_2, 2}},
    {.name = {"text", 4}, .datatype = DT_BYTES, .shape = {rows_of_1, 2}},
};
static const struct tensor_spec outputs[] = {
    {.name = {"label", 5}, .datatype = DT_INT64, .shape = {rows_of_1, 2}},
};
static const struct model_spec model = {
    .name = {"digits", 6}, .inputs = inputs, .n_inputs = 2, .outputs = outputs, .n_outputs = 1};

/* Arguments separated by '|'. Returns: the status of the request, made with the model's metadata
 * unless `alone`. */
static enum status make(struct arena *arena, const char *line, bool alone,
                        struct client_infer *call, struct error *err) {
    char infer[] = "infer";
    char *argv[32] = {infer};
    int argc = 1;
    struct str rest = str_of(line);
    while (rest.ptr) {
        argv[argc++] = (char *)(uintptr_t)arena_dup(arena, str_cut(&rest, '|')).ptr;
    }
    struct infer_settings *settings = arena_calloc(arena, 1, sizeof(*settings));
    assert_int_equal(infer_settings_read(argc, argv, arena, settings), -1);
    assert_int_equal(infer_call_is_complete(settings), alone);
    struct infer_model known = {.spec = alone ? NULL : &model};
    return infer_call_init(arena, settings, &known, call, err);
}

static void infer_call_tensors_follow_flags_and_model(void **state) {
    (void)state;
    static const struct {
        const char *line;
        bool alone;
        enum datatype datatype;
        const char *shape;
        const char *bytes;
        size_t n_bytes;
    } rows[] = {
        {"http://u|m|--input|image=[[1,2]]", false, DT_FP32, "[1,2]", "\0\0\x80?\0\0\0@", 8},
        {"http://u|m|--input|image=[1,2]", false, DT_FP32, "[1,2]", "\0\0\x80?\0\0\0@", 8},
        {"http://u|m|--input|text=hi", false, DT_BYTES, "[1,1]", "\2\0\0\0hi", 6},
        {"http://u|m|--input|text=", false, DT_BYTES, "[1,1]", "\0\0\0\0", 4},
        {"http://u|m|--input|text=\"hi\"", false, DT_BYTES, "[1,1]", "\2\0\0\0hi", 6},
        {"http://u|m|--input|text=[\"a\",\"\"]", false, DT_BYTES, "[2,1]", "\1\0\0\0a\0\0\0\0", 9},
        {"http://u|m|--input|text=[[\"a\"]]", false, DT_BYTES, "[1,1]", "\1\0\0\0a", 5},
        {"http://u|m|--input|x=[1,2,3,4]|--datatype|x=UINT8|--shape|x=2,2", true, DT_UINT8, "[2,2]",
         "\1\2\3\4", 4},
        {"http://u|m|--input|image=[1,2,3,4]|--shape|image=2,2|--datatype|image=INT8", true,
         DT_INT8, "[2,2]", "\1\2\3\4", 4},
        {"http://u|m|--input|image=5|--datatype|image=UINT16|--shape|image=1", true, DT_UINT16,
         "[1]", "\5\0", 2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_infer call;
        struct error err = {0};
        char text[SHAPE_TEXT_BYTES], all[64];
        size_t n = 0;
        if (make(arena, rows[i].line, rows[i].alone, &call, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].line, err.text);
        }
        const struct tensor *tensor = &call.request->infer.inputs[0].tensor;
        assert_int_equal(tensor->datatype, rows[i].datatype);
        assert_string_equal(shape_print(tensor->shape, text), rows[i].shape);
        for (size_t k = 0; k < tensor->n_pieces; k++) {
            memcpy(all + n, tensor->pieces[k].data, tensor->pieces[k].n_bytes);
            n += tensor->pieces[k].n_bytes;
        }
        assert_int_equal(n, rows[i].n_bytes);
        assert_memory_equal(all, rows[i].bytes, n);
        assert_int_equal(tensor->n_bytes, n);
        arena_free(arena);
    }
}

static void infer_call_invalid_refused(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"http://u|m|--input|imgae=[1,2]",
         "model \"digits\" has no input \"imgae\"; did you mean \"image\"? (it has: image, text)"},
        {"http://u|m|--input|image=[1,2]|--output|labels",
         "has no output \"labels\"; did you mean"},
        {"http://u|m|--input|image=[1,2,3]",
         "input \"image\": the data has shape [3], and the model"},
        {"http://u|m|--input|image=[[1],[2,3]]", "input \"image\": the nested arrays differ"},
        {"http://u|m|--input|image=[1,\"a\"]", "input \"image\": data[1]"},
        {"http://u|m|--input|image=[1,2", "input \"image\""},
        {"http://u|m|--input|image=hello", "input \"image\""},
        {"http://u|m|--input|image=[1,2]|--input|image=[1,2]", "input \"image\" is given twice"},
        {"http://u|m|--input|image=[1,2]|--datatype|image=FLOAT",
         "--datatype image=FLOAT: expected BOOL"},
        {"http://u|m|--input|image=[1,2]|--datatype|FP32", "--datatype FP32: expected NAME=TYPE"},
        {"http://u|m|--input|image=[1,2]|--datatype|x=FP32",
         "--datatype x=FP32: there is no --input \"x\""},
        {"http://u|m|--input|image=[1,2]|--shape|image=1|--shape|image=2",
         "--shape is given twice for input \"image\""},
        {"http://u|m|--input|image=[1,2]|--shape|image=a", "--shape image: expected"},
        {"http://u|m|--input|image=[1,2]|--parameter|x", "--parameter x: expected KEY=VALUE"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_infer call;
        struct error err = {0};
        assert_int_not_equal(make(arena, rows[i].line, false, &call, &err), ST_OK);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].line, err.text, rows[i].says);
        }
        arena_free(arena);
    }
}

static void infer_settings_valid_accepted(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct client_infer call;
    struct error err = {0};
    const char *line = "http://u|m|-i|image=[1,2]|--model-version|7|--id|q|--output|label|--binary"
                       "|-p|a=1|-p|b=x y|--timeout|2s";
    assert_int_equal(make(arena, line, false, &call, &err), ST_OK);
    assert_true(str_is(call.model, "m"));
    assert_true(str_is(call.version, "7"));
    assert_true(str_is(call.request->infer.id, "q"));
    assert_int_equal(call.request->infer.n_wanted, 1);
    assert_true(call.request->binary_default);
    assert_int_equal(call.forms[0], V2_FORM_BINARY);
    assert_int_equal(call.request->infer.params.n, 2);
    assert_int_equal(call.timeout_ns, 2000000000);
    assert_false(call.raw);
    assert_int_equal(make(arena, "http://u|m|-i|text=x", false, &call, &err), ST_OK);
    assert_null(call.version.ptr);
    assert_int_equal(call.forms[0], V2_FORM_JSON);
    arena_free(arena);
}

static void infer_call_parameters_are_parsed(void **state) {
    (void)state;
    static const struct {
        const char *argument;
        enum param_kind kind;
        const char *value;
    } rows[] = {
        {"k=5", PARAM_INT64, "5"},
        {"k=-9223372036854775808", PARAM_INT64, "-9223372036854775808"},
        {"k=18446744073709551615", PARAM_UINT64, "18446744073709551615"},
        {"k=1.5", PARAM_DOUBLE, "1.5"},
        {"k=true", PARAM_BOOL, "1"},
        {"k=false", PARAM_BOOL, "0"},
        {"k=True", PARAM_STRING, "True"},
        {"k=", PARAM_STRING, ""},
        {"k=a=b", PARAM_STRING, "a=b"},
        {"k=\"5\"", PARAM_STRING, "5"},
        {"k=\"", PARAM_STRING, "\""},
        {"k=+5", PARAM_STRING, "+5"},
        {"k=0x5", PARAM_STRING, "0x5"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct param param;
        struct error err = {0};
        char text[32] = "";
        assert_int_equal(infer_param_parse(rows[i].argument, &param, &err), ST_OK);
        assert_true(str_is(param.name, "k"));
        assert_int_equal(param.kind, rows[i].kind);
        if (param.kind == PARAM_INT64) {
            snprintf(text, sizeof(text), "%lld", (long long)param.int64);
        } else if (param.kind == PARAM_UINT64) {
            snprintf(text, sizeof(text), "%llu", (unsigned long long)param.uint64);
        } else if (param.kind == PARAM_DOUBLE) {
            snprintf(text, sizeof(text), "%g", param.number);
        } else if (param.kind == PARAM_BOOL) {
            snprintf(text, sizeof(text), "%d", param.boolean);
        } else {
            snprintf(text, sizeof(text), "%.*s", STR_ARG(param.string));
        }
        assert_string_equal(text, rows[i].value);
    }
}

/* Contradicting arguments exit with the usage code. */
static void infer_settings_invalid_refused(void **state) {
    (void)state;
    static const char *const lines[] = {
        "http://u|m|--raw|--binary|-i|a=1",
        "http://u|m|--raw",
        "http://u|m|--raw|-i|a=1|-i|b=2",
        "http://u|m|--raw|-i|a=1|--id|x",
        "http://u|m|-i|a=1|--output-dir|d",
        "http://u|m|-i|a=1|--format|npy",
        "http://u|m|--format|raw|--output-dir|d|-o|f",
        "u",
        "http://u|m|extra",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_settings made;
        char infer[] = "infer";
        char *argv[16] = {infer};
        int argc = 1;
        struct str rest = str_of(lines[i]);
        while (rest.ptr) {
            argv[argc++] = (char *)(uintptr_t)arena_dup(arena, str_cut(&rest, '|')).ptr;
        }
        assert_int_equal(infer_settings_read(argc, argv, arena, &made), 2);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_call_tensors_follow_flags_and_model),
        cmocka_unit_test(infer_call_invalid_refused),
        cmocka_unit_test(infer_settings_valid_accepted),
        cmocka_unit_test(infer_call_parameters_are_parsed),
        cmocka_unit_test(infer_settings_invalid_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
