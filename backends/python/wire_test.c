/* The messages of a worker: what is written is read back, and nothing is read beyond a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "python/wire.h"

static void add_head(struct wire_buf *buf, uint32_t n_responses, uint32_t tail) {
    wire_begin(buf, WIRE_RESULT);
    wire_add_u32(buf, 3);
    wire_add_u8(buf, 1);
    wire_add_u64(buf, 10);
    wire_add_u64(buf, 20);
    wire_add_u32(buf, n_responses);
    wire_add_u32(buf, tail);
    wire_add_u32(buf, 0);
}

static void add_output(struct wire_buf *buf, uint8_t datatype, uint8_t rank, int64_t size) {
    wire_add_u32(buf, 4);
    wire_add_u8(buf, datatype);
    wire_add_u8(buf, rank);
    wire_add_u64(buf, 64);
    wire_add_u64(buf, 8);
    for (uint8_t i = 0; i < rank; i++) {
        wire_add_u64(buf, (uint64_t)size);
    }
}

static void add_response(struct wire_buf *buf, uint8_t datatype, uint8_t rank, int64_t size) {
    wire_add_u64(buf, 77);
    wire_add_u8(buf, 1);
    wire_add_u8(buf, SLUICE_OK);
    wire_add_u32(buf, 1);
    add_output(buf, datatype, rank, size);
    sluice_param param = {.name = "n", .name_bytes = 1, .kind = SLUICE_PARAM_INT64, .int64 = -5};
    wire_add_u32(buf, 1);
    wire_add_param(buf, &param);
}

/* Reads a result with one response as the backend does. Returns: whether it is well-formed. */
static int read_all(const unsigned char *bytes, size_t n_bytes) {
    struct wire_reader reader;
    struct wire_result result;
    struct wire_response response;
    struct wire_output output;
    sluice_param param;
    int64_t dims[WIRE_MAX_RANK];
    wire_reader_init(&reader, bytes, n_bytes);
    wire_read_result(&reader, &result);
    for (uint32_t i = 0; i < result.n_responses; i++) {
        wire_read_response(&reader, &response);
        for (uint32_t k = 0; k < response.n_outputs; k++) {
            wire_read_output(&reader, &output);
            wire_copy_dims(&reader, &output, dims);
        }
        uint32_t n_params = wire_read_count(&reader, WIRE_PARAM_LEAST);
        for (uint32_t k = 0; k < n_params; k++) {
            wire_read_param(&reader, &param);
        }
    }
    return !reader.failed;
}

static void wire_result_is_read_back(void **state) {
    (void)state;
    struct wire_buf buf = {0};
    struct wire_reader reader;
    struct wire_result result;
    struct wire_response response;
    struct wire_output output;
    int64_t dims[WIRE_MAX_RANK];
    sluice_param param;
    add_head(&buf, 1, 48);
    add_response(&buf, SLUICE_FP32, 2, 6);
    assert_true(wire_end(&buf));
    wire_reader_init(&reader, buf.bytes, buf.n_bytes);
    wire_read_result(&reader, &result);
    assert_int_equal(result.batch, 3);
    assert_int_equal(result.n_responses, 1);
    assert_int_equal(result.tail, 48);
    wire_read_response(&reader, &response);
    assert_int_equal(response.token, 77);
    assert_int_equal(response.n_outputs, 1);
    wire_read_output(&reader, &output);
    assert_int_equal(output.datatype, SLUICE_FP32);
    assert_int_equal(output.offset, 64);
    wire_copy_dims(&reader, &output, dims);
    assert_int_equal(dims[1], 6);
    assert_int_equal(wire_read_count(&reader, WIRE_PARAM_LEAST), 1);
    wire_read_param(&reader, &param);
    assert_int_equal(param.kind, SLUICE_PARAM_INT64);
    assert_int_equal(param.int64, -5);
    assert_false(reader.failed);
    wire_buf_fini(&buf);
}

/* In memory of the exact size, so that the address sanitizer sees a read beyond it. */
static void wire_result_cut_anywhere_fails(void **state) {
    (void)state;
    struct wire_buf buf = {0};
    add_head(&buf, 1, 0);
    add_response(&buf, SLUICE_BYTES, 3, 0);
    assert_true(wire_end(&buf));
    assert_true(read_all(buf.bytes, buf.n_bytes));
    for (size_t n = WIRE_HEAD_BYTES; n < buf.n_bytes; n++) {
        unsigned char *cut = malloc(n);
        assert_non_null(cut);
        memcpy(cut, buf.bytes, n);
        assert_false(read_all(cut, n));
        free(cut);
    }
    wire_buf_fini(&buf);
}

static void expect_refused(uint32_t n_responses, uint32_t tail, uint8_t datatype, uint8_t rank,
                           int64_t size) {
    struct wire_buf buf = {0};
    add_head(&buf, n_responses, tail);
    add_response(&buf, datatype, rank, size);
    assert_true(wire_end(&buf));
    assert_false(read_all(buf.bytes, buf.n_bytes));
    wire_buf_fini(&buf);
}

static void wire_impossible_numbers_fail(void **state) {
    (void)state;
    expect_refused(UINT32_MAX, 0, SLUICE_FP32, 1, 1);
    expect_refused(1, UINT32_MAX, SLUICE_FP32, 1, 1);
    expect_refused(1, 8, SLUICE_FP32, 1, 1); /* no multiple of 16 */
    expect_refused(1, 0, 0, 1, 1);
    expect_refused(1, 0, SLUICE_BF16 + 1, 1, 1);
    expect_refused(1, 0, SLUICE_FP32, WIRE_MAX_RANK + 1, 1);
    expect_refused(1, 0, SLUICE_FP32, 1, -1);
}

static void wire_head_of_impossible_length_is_refused(void **state) {
    (void)state;
    struct wire_head head;
    const uint32_t few[] = {WIRE_HEAD_BYTES - 1, 1}, many[] = {WIRE_MAX_BYTES + 1, 1},
                   fits[] = {WIRE_HEAD_BYTES, WIRE_READY};
    assert_false(wire_head_read((const unsigned char *)few, &head));
    assert_false(wire_head_read((const unsigned char *)many, &head));
    assert_true(wire_head_read((const unsigned char *)fits, &head));
    assert_int_equal(head.type, WIRE_READY);
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct call_numbers {
    uint32_t n_inputs, n_wanted, n_params, tail;
};

static void add_text(struct wire_buf *buf, const char *text) {
    wire_add_text(buf, text, strlen(text));
}

static void add_call(struct wire_buf *buf, const struct call_numbers *numbers) {
    wire_begin(buf, WIRE_CALL);
    wire_add_u32(buf, 9);
    wire_add_u64(buf, 77);
    wire_add_u8(buf, 1);
    wire_add_u64(buf, 5);
    wire_add_u32(buf, SLUICE_SEQUENCE_START);
    wire_add_u64(buf, 2);
    wire_add_u64(buf, 1000);
    wire_add_u32(buf, numbers->n_inputs);
    wire_add_u32(buf, numbers->n_wanted);
    wire_add_u32(buf, numbers->n_params);
    wire_add_u32(buf, numbers->tail);
    wire_add_u32(buf, 3);
    add_text(buf, "model");
    add_text(buf, "1");
    add_text(buf, "id");
    add_text(buf, "");
    add_text(buf, "INPUT");
    add_output(buf, SLUICE_FP32, 1, 2);
    add_text(buf, "OUTPUT");
    sluice_param param = {.name = "n", .name_bytes = 1, .kind = SLUICE_PARAM_BOOL, .boolean = 1};
    wire_add_param(buf, &param);
    assert_true(wire_end(buf));
}

/* Reads it as the backend does. Returns: whether it is well-formed. */
static int read_call(const unsigned char *bytes, size_t n_bytes, struct wire_call *call) {
    struct wire_reader reader;
    wire_reader_init(&reader, bytes, n_bytes);
    wire_read_call(&reader, call);
    for (uint32_t i = 0; i < call->n_inputs; i++) {
        struct wire_output input;
        int64_t dims[WIRE_MAX_RANK];
        (void)wire_read_text(&reader);
        wire_read_output(&reader, &input);
        wire_copy_dims(&reader, &input, dims);
    }
    for (uint32_t i = 0; i < call->n_wanted; i++) {
        (void)wire_read_text(&reader);
    }
    for (uint32_t i = 0; i < call->n_params; i++) {
        sluice_param param;
        wire_read_param(&reader, &param);
    }
    return !reader.failed;
}

static const struct call_numbers usual = {1, 1, 1, 48};

static void wire_call_is_read_back(void **state) {
    (void)state;
    struct wire_buf buf = {0};
    struct wire_call call;
    add_call(&buf, &usual);
    assert_true(read_call(buf.bytes, buf.n_bytes, &call));
    assert_int_equal(call.tag, 9);
    assert_int_equal(call.parent, 77);
    assert_int_equal(call.takes_many, 1);
    assert_int_equal(call.waits, 0);
    assert_int_equal(call.sequence, 5);
    assert_int_equal(call.timeout_us, 1000);
    assert_int_equal(call.block, 3);
    assert_int_equal(call.model.n_bytes, 5);
    assert_memory_equal(call.model.ptr, "model", 5);
    wire_buf_fini(&buf);
}

static void wire_call_cut_anywhere_fails(void **state) {
    (void)state;
    struct wire_buf buf = {0};
    struct wire_call call;
    add_call(&buf, &(struct call_numbers){1, 1, 1, 0});
    for (size_t n = WIRE_HEAD_BYTES; n < buf.n_bytes; n++) {
        unsigned char *cut = malloc(n);
        assert_non_null(cut);
        memcpy(cut, buf.bytes, n);
        assert_false(read_call(cut, n, &call));
        free(cut);
    }
    wire_buf_fini(&buf);
}

static void wire_call_of_impossible_numbers_fails(void **state) {
    (void)state;
    static const struct call_numbers impossible[] = {
        {UINT32_MAX, 1, 1, 48}, {1, UINT32_MAX, 1, 48}, {1, 1, UINT32_MAX, 48},
        {1, 1, 1, UINT32_MAX},  {1, 1, 1, 40},
    };
    for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
        struct wire_buf buf = {0};
        struct wire_call call;
        add_call(&buf, &impossible[i]);
        assert_false(read_call(buf.bytes, buf.n_bytes, &call));
        assert_int_equal(call.n_inputs + call.n_wanted + call.n_params, 0);
        wire_buf_fini(&buf);
    }
}

static void wire_manage_of_unknown_action_fails(void **state) {
    (void)state;
    for (int action = WIRE_IS_READY; action <= WIRE_UNLOAD + 1; action++) {
        struct wire_buf buf = {0};
        struct wire_reader reader;
        struct wire_manage manage;
        wire_begin(&buf, WIRE_MANAGE);
        wire_add_u32(&buf, 4);
        wire_add_u8(&buf, (uint8_t)action);
        wire_add_u8(&buf, 1);
        add_text(&buf, "model");
        add_text(&buf, "");
        add_text(&buf, "{}");
        wire_add_u32(&buf, 0);
        assert_true(wire_end(&buf));
        wire_reader_init(&reader, buf.bytes, buf.n_bytes);
        wire_read_manage(&reader, &manage);
        assert_int_equal(reader.failed, action > WIRE_UNLOAD);
        assert_int_equal(manage.tag, 4);
        wire_buf_fini(&buf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_result_is_read_back),
        cmocka_unit_test(wire_result_cut_anywhere_fails),
        cmocka_unit_test(wire_impossible_numbers_fail),
        cmocka_unit_test(wire_head_of_impossible_length_is_refused),
        cmocka_unit_test(wire_call_is_read_back),
        cmocka_unit_test(wire_call_cut_anywhere_fails),
        cmocka_unit_test(wire_call_of_impossible_numbers_fails),
        cmocka_unit_test(wire_manage_of_unknown_action_fails),
    };
    return cmocka_run_group_tests_name("python/wire", tests, NULL, NULL);
}
