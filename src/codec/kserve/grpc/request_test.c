/* ModelInferRequest: valid messages in every form, and invalid ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/grpc/v2_grpc_fixture.h"
#include "codec/protobuf/pb.h"
#include "core/base/arena_fixture.h"

static struct v2_grpc_request request;
static struct error err;

static enum status decode(struct str message) {
    static const struct json_limits limits = {.max_tensor_elements = 1000};
    return v2_grpc_request_decode(arena, message, &limits, &request, &err);
}

static void assert_bytes(const struct tensor *tensor, const char *bytes, size_t n) {
    assert_int_equal(tensor->n_bytes, n);
    size_t at = 0;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        assert_memory_equal(tensor->pieces[i].data, bytes + at, tensor->pieces[i].n_bytes);
        at += tensor->pieces[i].n_bytes;
    }
    assert_int_equal(at, n);
}

static void v2_grpc_request_typed_contents_are_decoded(void **state) {
    (void)state;
    assert_int_equal(decode(MESSAGE(TYPED)), ST_OK);
    const struct infer_request *infer = &request.infer;
    assert_true(str_is(request.model, "m") && str_is(request.version, "2"));
    assert_true(str_is(infer->id, "abc"));
    assert_int_equal(infer->params.n, 4);
    assert_true(params_find(infer->params, "flag")->boolean);
    assert_int_equal(params_find(infer->params, "priority")->int64, 1);
    assert_true(params_find(infer->params, "d")->number == 0.5);
    assert_true(str_is(params_find(infer->params, "s")->string, "x"));
    assert_int_equal(infer->n_inputs, 3);
    assert_int_equal(infer->inputs[0].tensor.datatype, DT_INT8);
    assert_int_equal(infer->inputs[0].tensor.shape.rank, 2);
    assert_int_equal(infer->inputs[0].tensor.shape.dims[1], 3);
    assert_bytes(&infer->inputs[0].tensor, "\xff\x7f\x80", 3);
    assert_bytes(&infer->inputs[1].tensor, "\3\0\0\0a\0b\0\0\0\0", 11);
    assert_bytes(&infer->inputs[2].tensor, "\0\0\xc0\x3f\0\0\0\xc0", 8);
    assert_int_equal(infer->n_wanted, 1);
    assert_true(str_is(infer->wanted[0].name, "O"));
}

static void v2_grpc_request_raw_contents_are_views(void **state) {
    (void)state;
    assert_int_equal(decode(MESSAGE(RAW)), ST_OK);
    const struct infer_request *infer = &request.infer;
    assert_int_equal(infer->n_inputs, 2);
    assert_bytes(&infer->inputs[0].tensor, "\1\2\3", 3);
    const char *data = infer->inputs[0].tensor.pieces[0].data;
    assert_true(data > RAW && data < RAW + sizeof RAW);
    assert_int_equal(infer->inputs[1].tensor.n_bytes, 0);
}

/* Every prefix, in memory of its exact size: nothing is read past it. */
static void v2_grpc_request_prefix_is_not_read_past(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof TYPED - 1; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, TYPED, n);
        (void)decode(str_make(copy, n));
        free(copy);
    }
}

/* ---- generated messages ---------------------------------------------------------------------- */

static struct buf message;

static void begin(void) {
    buf_init(&message, arena, 256);
    pb_add_string(&message, 1, STR("m"));
}

/* Begins an input; the caller writes its contents and then calls pb_end. */
static size_t begin_input(const char *datatype, int64_t n) {
    size_t input = pb_begin(&message, 5);
    pb_add_string(&message, 1, STR("A"));
    pb_add_string(&message, 2, str_of(datatype));
    pb_add_packed_i64(&message, 3, &n, 1);
    return input;
}

static void v2_grpc_request_unpacked_and_split_lists_are_merged(void **state) {
    (void)state;
    begin();
    size_t input = begin_input("INT32", 4);
    for (int part = 0; part < 2; part++) { /* a repeated single message is merged */
        size_t contents = pb_begin(&message, 5);
        pb_add_varint(&message, 2, 7);
        pb_add_bytes(&message, 2, STR("\x08"));
        pb_end(&message, contents);
    }
    pb_end(&message, input);
    assert_int_equal(decode(buf_str(&message)), ST_OK);
    assert_bytes(&request.infer.inputs[0].tensor, "\7\0\0\0\x08\0\0\0\7\0\0\0\x08\0\0\0", 16);
}

static void v2_grpc_request_unknown_fields_in_any_order_are_skipped(void **state) {
    (void)state;
    buf_init(&message, arena, 256);
    pb_add_bytes(&message, 7, STR("\1\2"));
    pb_add_string(&message, 99, STR("from the future"));
    size_t input = begin_input("INT16", 1);
    pb_add_fixed32(&message, 77, 1);
    pb_end(&message, input);
    pb_add_string(&message, 1, STR("first"));
    pb_add_string(&message, 1, STR("last"));
    assert_int_equal(decode(buf_str(&message)), ST_OK);
    assert_true(str_is(request.model, "last"));
    assert_bytes(&request.infer.inputs[0].tensor, "\1\2", 2);
}

static void v2_grpc_request_duplicate_parameter_takes_last(void **state) {
    (void)state;
    begin();
    for (uint64_t i = 0; i < 3; i++) {
        size_t entry = pb_begin(&message, 4);
        pb_add_string(&message, 1, STR("k"));
        size_t value = pb_begin(&message, 2);
        pb_add_varint(&message, 2, i);
        pb_end(&message, value);
        pb_end(&message, entry);
    }
    assert_int_equal(decode(buf_str(&message)), ST_OK);
    assert_int_equal(request.infer.params.n, 1);
    assert_int_equal(request.infer.params.items[0].int64, 2);
}

/* One input with one list, and its expected bytes or error. */
static void v2_grpc_request_typed_value_must_fit_datatype(void **state) {
    (void)state;
    static const struct {
        const char *datatype;
        uint32_t list;
        uint64_t value;
        enum status want;
        const char *says;
    } rows[] = {
        {"INT8", 2, 127, ST_OK, ""},
        {"INT8", 2, (uint64_t)-128, ST_OK, ""},
        {"INT8", 2, 128, ST_BAD_FIELD, "inputs[0].contents.int_contents: element 0"},
        {"INT8", 2, (uint64_t)-129, ST_BAD_FIELD, "range of INT8"},
        {"INT16", 2, (uint64_t)-32769, ST_BAD_FIELD, "range of INT16"},
        {"INT32", 2, (uint64_t)INT32_MIN, ST_OK, ""},
        {"INT32", 2, UINT32_MAX, ST_BAD_FIELD, "range of INT32"},
        {"INT64", 3, UINT64_MAX, ST_OK, ""},
        {"UINT8", 4, 255, ST_OK, ""},
        {"UINT8", 4, 256, ST_BAD_FIELD, "range of UINT8"},
        {"UINT8", 4, UINT64_MAX, ST_BAD_FIELD, "range of UINT8"},
        {"UINT32", 4, UINT32_MAX, ST_OK, ""},
        {"UINT64", 5, UINT64_MAX, ST_OK, ""},
        {"BOOL", 1, 2, ST_OK, ""},
        {"INT8", 3, 1, ST_BAD_FIELD, "expected int_contents for INT8, got int64_contents"},
        {"FP32", 2, 1, ST_BAD_FIELD, "expected fp32_contents"},
        {"FP32", 6, 1, ST_BAD_FIELD, "wrong type"},
        {"FP16", 6, 1, ST_BAD_FIELD, "FP16 is allowed in raw_input_contents only"},
        {"BYTES", 8, 1, ST_BAD_FIELD, "expected bytes"},
        {"FP33", 6, 1, ST_BAD_DATATYPE, "got \"FP33\""},
        {"", 6, 1, ST_BAD_DATATYPE, "got none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin();
        size_t input = begin_input(rows[i].datatype, 1);
        size_t contents = pb_begin(&message, 5);
        pb_add_varint(&message, rows[i].list, rows[i].value);
        pb_end(&message, contents);
        pb_end(&message, input);
        err.text[0] = 0;
        assert_int_equal(decode(buf_str(&message)), rows[i].want);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("row %zu: \"%s\"", i, err.text);
        }
    }
}

static void v2_grpc_request_invalid_shape_is_refused(void **state) {
    (void)state;
    static const struct {
        int64_t dims[3];
        size_t rank;
        enum status want;
    } rows[] = {
        {{-1}, 1, ST_BAD_SHAPE},
        {{INT64_MAX, INT64_MAX}, 2, ST_BAD_SHAPE},
        {{INT64_C(1) << 32, INT64_C(1) << 32, 4}, 3, ST_BAD_SHAPE},
        {{1001}, 1, ST_TOO_MANY_ELEMENTS},
        {{0, INT64_MAX, INT64_MAX}, 3, ST_OK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin();
        size_t input = pb_begin(&message, 5);
        pb_add_string(&message, 1, STR("A"));
        pb_add_string(&message, 2, STR("FP32"));
        pb_add_packed_i64(&message, 3, rows[i].dims, rows[i].rank);
        pb_end(&message, input);
        pb_add_bytes(&message, 7, STR(""));
        assert_int_equal(decode(buf_str(&message)), rows[i].want);
    }
    begin();
    size_t input = pb_begin(&message, 5);
    pb_add_string(&message, 1, STR("A"));
    pb_add_string(&message, 2, STR("FP32"));
    for (int i = 0; i < 65; i++) {
        pb_add_varint(&message, 3, 1);
    }
    pb_end(&message, input);
    assert_int_equal(decode(buf_str(&message)), ST_BAD_SHAPE);
    assert_non_null(strstr(err.text, "at most 64 dimensions"));
}

static void v2_grpc_request_raw_count_mismatch_is_refused(void **state) {
    (void)state;
    begin();
    pb_end(&message, begin_input("INT8", 1));
    assert_int_equal(decode(buf_str(&message)), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "inputs[0] has no data"));
    pb_add_bytes(&message, 7, STR("a"));
    assert_int_equal(decode(buf_str(&message)), ST_OK);
    pb_add_bytes(&message, 7, STR("b"));
    assert_int_equal(decode(buf_str(&message)), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "expected 1 entries, one for each input, got 2"));
    begin();
    size_t input = begin_input("INT8", 1);
    pb_end(&message, pb_begin(&message, 5));
    pb_end(&message, input);
    pb_add_bytes(&message, 7, STR("a"));
    assert_int_equal(decode(buf_str(&message)), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "expected nothing here"));
}

static void v2_grpc_request_invalid_names_and_parameters_are_refused(void **state) {
    (void)state;
    static const struct {
        struct str bytes;
        enum status want;
        const char *says;
    } rows[] = {
        {{"\x0a\x01\xff", 3}, ST_BAD_FIELD, "model_name: expected UTF-8"},
        {{"\x08\x01", 2}, ST_BAD_FIELD, "model_name: expected a string"},
        {{"\x28\x01", 2}, ST_BAD_FIELD, "inputs: expected a message"},
        {{"\x2a\x00", 2}, ST_BAD_FIELD, "inputs[0].name: expected a name"},
        {{"\x22\x03\x0a\x01k", 5}, ST_BAD_FIELD, "\"k\" has no value"},
        {{"\x22\x07\x0a\x01k\x12\x02\x0a\x00", 9}, ST_BAD_FIELD, "wrong type"},
        {{"\x22\x10\x0a\x0atriton_abc\x12\x02\x08\x01", 18}, ST_BAD_FIELD, "reserved"},
        {{"\x32\x16\x12\x14\x0a\x0e"
          "classification\x12\x02\x10\x00",
          24},
         ST_BAD_FIELD,
         "outputs[0].parameters: expected classification to be"},
        {{"\x32\x16\x12\x14\x0a\x0e"
          "classification\x12\x02\x08\x01",
          24},
         ST_BAD_FIELD,
         "outputs[0].parameters: expected classification to be"},
        {{"\x0a\x05m", 3}, ST_BAD_REQUEST, "not a ModelInferRequest"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err.text[0] = 0;
        enum status st = decode(rows[i].bytes);
        if (st != rows[i].want || !strstr(err.text, rows[i].says)) {
            fail_msg("row %zu: %s \"%s\"", i, status_name(st), err.text);
        }
    }
}

static void v2_grpc_raw_offset_is_first_raw_byte(void **state) {
    (void)state;
    size_t at = v2_grpc_raw_offset(MESSAGE(RAW));
    assert_memory_equal(RAW + at, "\1\2\3", 3);
    assert_int_equal(v2_grpc_raw_offset(str_make(RAW, at)), at); /* its bytes are missing */
    assert_int_equal(v2_grpc_raw_offset(str_make(RAW, at - 1)), 0);
    assert_int_equal(v2_grpc_raw_offset(MESSAGE(TYPED)), 0);
    assert_int_equal(v2_grpc_raw_offset(STR("")), 0);
}

static void v2_grpc_request_encode_matches_foreign_bytes(void **state) {
    (void)state;
    assert_int_equal(decode(MESSAGE(RAW)), ST_OK);
    struct v2_grpc_message out;
    struct v2_grpc_request copy = request;
    assert_int_equal(v2_grpc_request_encode(arena, &copy, &out, &err), ST_OK);
    struct buf whole;
    buf_init(&whole, arena, 64);
    for (size_t i = 0; i < out.n_pieces; i++) {
        buf_add(&whole, out.pieces[i].data, out.pieces[i].n_bytes);
    }
    assert_int_equal(whole.len, out.n_bytes);
    assert_int_equal(whole.len, sizeof RAW - 1);
    assert_memory_equal(whole.data, RAW, whole.len);
}

static void v2_grpc_request_encode_shared_memory_and_classes(void **state) {
    (void)state;
    static const int64_t two[] = {2};
    static const struct piece ab = {"ab", 2};
    struct infer_input inputs[] = {
        {.tensor = {.name = STR("A"), .datatype = DT_UINT8, .shape = {two, 1}},
         .region = {STR("r"), 7, 2}},
        {.tensor = {.name = STR("B"),
                    .datatype = DT_UINT8,
                    .shape = {two, 1},
                    .pieces = &ab,
                    .n_pieces = 1,
                    .n_bytes = 2}}};
    struct infer_requested_output wanted[] = {{.name = STR("Y"), .region = {STR("q"), 0, 100}},
                                              {.name = STR("Z"), .n_classes = 5}};
    const struct v2_grpc_request made = {
        .infer = {.inputs = inputs, .n_inputs = 2, .wanted = wanted, .n_wanted = 2},
        .model = STR("m"),
        .version = STR("")};
    struct v2_grpc_message out;
    assert_int_equal(v2_grpc_request_encode(arena, &made, &out, &err), ST_OK);
    struct buf whole;
    buf_init(&whole, arena, 64);
    for (size_t i = 0; i < out.n_pieces; i++) {
        buf_add(&whole, out.pieces[i].data, out.pieces[i].n_bytes);
    }
    assert_int_equal(decode(buf_str(&whole)), ST_OK);
    const struct infer_request *back = &request.infer;
    assert_true(str_is(back->inputs[0].region.name, "r"));
    assert_true(back->inputs[0].region.offset == 7 && back->inputs[0].region.n_bytes == 2);
    assert_int_equal(back->inputs[1].tensor.n_bytes, 2);
    assert_true(str_is(back->wanted[0].region.name, "q"));
    assert_int_equal(back->wanted[0].region.n_bytes, 100);
    assert_int_equal(back->wanted[1].n_classes, 5);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(v2_grpc_request_typed_contents_are_decoded),
        TEST(v2_grpc_request_raw_contents_are_views),
        TEST(v2_grpc_request_prefix_is_not_read_past),
        TEST(v2_grpc_request_unpacked_and_split_lists_are_merged),
        TEST(v2_grpc_request_unknown_fields_in_any_order_are_skipped),
        TEST(v2_grpc_request_duplicate_parameter_takes_last),
        TEST(v2_grpc_request_typed_value_must_fit_datatype),
        TEST(v2_grpc_request_invalid_shape_is_refused),
        TEST(v2_grpc_request_raw_count_mismatch_is_refused),
        TEST(v2_grpc_request_invalid_names_and_parameters_are_refused),
        TEST(v2_grpc_raw_offset_is_first_raw_byte),
        TEST(v2_grpc_request_encode_matches_foreign_bytes),
        TEST(v2_grpc_request_encode_shared_memory_and_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
