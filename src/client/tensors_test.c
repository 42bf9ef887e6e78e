/* Helpers for tensors: constructors, copies with checks, strings, 16-bit floats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sluice/client.h"

static void tensors_constructors_set_datatype_and_size(void **state) {
    (void)state;
    static const int64_t dims[] = {2, 3};
    static const char data[48];
    const struct {
        sluice_tensor tensor;
        const char *datatype;
        size_t element_bytes;
    } rows[] = {
        {sluice_tensor_bool("x", (const uint8_t *)data, dims, 2), "BOOL", 1},
        {sluice_tensor_u8("x", (const uint8_t *)data, dims, 2), "UINT8", 1},
        {sluice_tensor_u16("x", (const uint16_t *)data, dims, 2), "UINT16", 2},
        {sluice_tensor_u32("x", (const uint32_t *)data, dims, 2), "UINT32", 4},
        {sluice_tensor_u64("x", (const uint64_t *)data, dims, 2), "UINT64", 8},
        {sluice_tensor_i8("x", (const int8_t *)data, dims, 2), "INT8", 1},
        {sluice_tensor_i16("x", (const int16_t *)data, dims, 2), "INT16", 2},
        {sluice_tensor_i32("x", (const int32_t *)data, dims, 2), "INT32", 4},
        {sluice_tensor_i64("x", (const int64_t *)data, dims, 2), "INT64", 8},
        {sluice_tensor_f16("x", (const uint16_t *)data, dims, 2), "FP16", 2},
        {sluice_tensor_bf16("x", (const uint16_t *)data, dims, 2), "BF16", 2},
        {sluice_tensor_f32("x", (const float *)data, dims, 2), "FP32", 4},
        {sluice_tensor_f64("x", (const double *)data, dims, 2), "FP64", 8},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const sluice_tensor *tensor = &rows[i].tensor;
        assert_int_equal(tensor->size, sizeof(sluice_tensor));
        assert_string_equal(tensor->name, "x");
        assert_string_equal(sluice_datatype_name((int32_t)tensor->datatype), rows[i].datatype);
        assert_int_equal(sluice_datatype_bytes((int32_t)tensor->datatype), rows[i].element_bytes);
        assert_int_equal(tensor->n_bytes, 6 * rows[i].element_bytes);
        assert_ptr_equal(tensor->data, data);
        assert_ptr_equal(tensor->dims, dims);
        assert_int_equal(tensor->rank, 2);
    }
    sluice_tensor strings = sluice_tensor_strings("s", data, 24, dims, 2);
    assert_int_equal(strings.datatype, SLUICE_BYTES);
    assert_int_equal(strings.n_bytes, 24);
    static const int32_t unknown[] = {0, -1, 15, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
        assert_string_equal(sluice_datatype_name(unknown[i]), "unknown");
        assert_int_equal(sluice_datatype_bytes(unknown[i]), 0);
    }
    assert_int_equal(sluice_datatype_bytes(SLUICE_BYTES), 0);
}

/* A shape without a size makes a tensor that no call takes. */
static void tensors_impossible_shape_has_no_size(void **state) {
    (void)state;
    static const struct {
        int64_t dims[3];
        size_t rank, n;
    } rows[] = {
        {{0}, 0, 1},
        {{7}, 1, 7},
        {{2, 0, INT64_MAX}, 3, 0},
        {{INT64_MAX, INT64_MAX, 0}, 3, 0},
        {{-1}, 1, SIZE_MAX},
        {{2, -1}, 2, SIZE_MAX},
        {{INT64_MIN}, 1, SIZE_MAX},
        {{INT64_MAX, 3}, 2, SIZE_MAX},
        {{(int64_t)1 << 32, (int64_t)1 << 32}, 2, SIZE_MAX},
    };
    float value = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_true(sluice_n_elements(rows[i].dims, rows[i].rank) == rows[i].n);
        sluice_tensor tensor = sluice_tensor_f32("x", &value, rows[i].dims, rows[i].rank);
        assert_true(tensor.n_bytes == (rows[i].n == SIZE_MAX ? SIZE_MAX : 4 * rows[i].n));
    }
    static const int64_t too_many[] = {INT64_MAX / 2};
    assert_true(sluice_tensor_f64("x", NULL, too_many, 1).n_bytes == SIZE_MAX);
    sluice_client_options options = {.size = sizeof(options), .url = "http+unix:/nowhere/at/all"};
    sluice_client_error error = {.size = sizeof(error)};
    sluice_client *client;
    sluice_call *call;
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
    for (size_t i = 4; i < sizeof(rows) / sizeof(*rows); i++) {
        sluice_tensor tensor = sluice_tensor_f32("x", &value, rows[i].dims, rows[i].rank);
        const sluice_infer_request request = {
            .size = sizeof(request), .model = "m", .inputs = &tensor, .n_inputs = 1};
        assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                         SLUICE_CLIENT_INVALID);
    }
    sluice_client_close(client);
}

static void tensors_parameters_have_their_kind(void **state) {
    (void)state;
    const sluice_parameter rows[] = {
        sluice_parameter_bool("a", 1),
        sluice_parameter_int64("b", INT64_MIN),
        sluice_parameter_uint64("c", UINT64_MAX),
        sluice_parameter_double("d", 0.5),
        sluice_parameter_string("e", "text"),
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(rows[i].size, sizeof(sluice_parameter));
        assert_int_equal(rows[i].name[0], 'a' + (int)i);
        assert_int_equal(rows[i].kind, (int)i);
    }
    assert_int_equal(rows[0].boolean, 1);
    assert_true(rows[1].int64 == INT64_MIN && rows[2].uint64 == UINT64_MAX);
    assert_true(rows[3].number == 0.5);
    assert_string_equal(rows[4].string, "text");
    assert_int_equal(rows[4].string_bytes, 4);
}

static void tensors_read_checks_datatype_and_size(void **state) {
    (void)state;
    static const int64_t dims[] = {3};
    static const float values[] = {1, -2.5f, 3};
    char unaligned[13];
    float out[4];
    memcpy(unaligned + 1, values, sizeof(values));
    sluice_tensor tensor = sluice_tensor_f32("x", values, dims, 1);
    tensor.data = unaligned + 1;
    assert_int_equal(sluice_tensor_read(&tensor, SLUICE_FP32, out, 3), SLUICE_CLIENT_OK);
    assert_memory_equal(out, values, sizeof(values));
    assert_int_equal(sluice_tensor_read(&tensor, SLUICE_INT32, out, 3), SLUICE_CLIENT_INVALID);
    assert_int_equal(sluice_tensor_read(&tensor, SLUICE_FP32, out, 2),
                     SLUICE_CLIENT_BUFFER_TOO_SMALL);
    assert_int_equal(sluice_tensor_read(&tensor, SLUICE_FP32, out, 4), SLUICE_CLIENT_NOT_FOUND);
    tensor.datatype = SLUICE_BYTES;
    assert_int_equal(sluice_tensor_read(&tensor, SLUICE_BYTES, out, 3), SLUICE_CLIENT_INVALID);
    static const int64_t none[] = {0};
    tensor = sluice_tensor_f32("x", NULL, none, 1);
    assert_int_equal(sluice_tensor_read(&tensor, SLUICE_FP32, out, 0), SLUICE_CLIENT_OK);
}

static void tensors_strings_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {"one", "", "gr\xc3\xbc\xc3\x9f", "a\0b"};
    static const size_t lengths[] = {3, 0, 6, 3};
    static const int64_t dims[] = {4};
    char packed[64];
    assert_int_equal(sluice_strings_bytes(texts, NULL, 4), 4 * 4 + 3 + 0 + 6 + 1);
    assert_int_equal(sluice_strings_bytes(texts, lengths, 4), 4 * 4 + 3 + 0 + 6 + 3);
    assert_int_equal(sluice_strings_bytes(NULL, NULL, 0), 0);
    memset(packed, 0x55, sizeof(packed));
    assert_int_equal(sluice_strings_pack(texts, lengths, 4, packed, 27),
                     SLUICE_CLIENT_BUFFER_TOO_SMALL);
    assert_int_equal(packed[0], 0x55);
    assert_int_equal(sluice_strings_pack(texts, lengths, 4, packed, 28), SLUICE_CLIENT_OK);
    assert_int_equal(packed[28], 0x55);
    sluice_tensor tensor = sluice_tensor_strings("x", packed, 28, dims, 1);
    size_t at = 0, n;
    const char *text;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(sluice_strings_next(&tensor, &at, &text, &n), SLUICE_CLIENT_OK);
        assert_int_equal(n, lengths[i]);
        assert_memory_equal(text, texts[i], n);
    }
    assert_int_equal(sluice_strings_next(&tensor, &at, &text, &n), SLUICE_CLIENT_NOT_FOUND);
    assert_int_equal(at, 28);
}

static void tensors_bad_strings_are_refused(void **state) {
    (void)state;
    static const int64_t dims[] = {1};
    static const char *const texts[] = {"x", "y"};
    static const size_t lengths[] = {(size_t)UINT32_MAX + 1, 1};
    static const size_t overflow[] = {1, SIZE_MAX};
    char packed[8];
    assert_true(sluice_strings_bytes(texts, lengths, 2) == SIZE_MAX);
    assert_true(sluice_strings_bytes(texts, overflow, 2) == SIZE_MAX);
    assert_int_equal(sluice_strings_pack(texts, lengths, 2, packed, sizeof(packed)),
                     SLUICE_CLIENT_INVALID);
    for (size_t n_bytes = 1; n_bytes < 7; n_bytes++) {
        sluice_tensor tensor = sluice_tensor_strings("x", "\3\0\0\0abc", n_bytes, dims, 1);
        size_t at = 0, n;
        const char *text;
        assert_int_equal(sluice_strings_next(&tensor, &at, &text, &n), SLUICE_CLIENT_PROTOCOL);
        assert_int_equal(at, 0);
        at = n_bytes + 1;
        assert_int_equal(sluice_strings_next(&tensor, &at, &text, &n), SLUICE_CLIENT_INVALID);
        at = 0;
        tensor.datatype = SLUICE_UINT8;
        assert_int_equal(sluice_strings_next(&tensor, &at, &text, &n), SLUICE_CLIENT_INVALID);
    }
}

static void tensors_16_bit_floats_round_trip(void **state) {
    (void)state;
    static const float values[] = {0, -0.0f, 1, -2.5f, 65504, 1e-7f, INFINITY, 1e6f};
    enum { N = sizeof(values) / sizeof(*values) };
    char bits[2 * N + 1];
    float back[N];
    sluice_f16_from_f32(bits + 1, values, N);
    sluice_f16_to_f32(back, bits + 1, N);
    assert_memory_equal(back, values, 5 * sizeof(*values));
    assert_true(back[5] > 0 && back[5] < 2e-7f && isinf(back[6]) && isinf(back[7]));
    sluice_bf16_from_f32(bits + 1, values, N);
    sluice_bf16_to_f32(back, bits + 1, N);
    assert_memory_equal(back, values, 4 * sizeof(*values));
    assert_true(back[4] == 65536 && back[7] > 0.99e6f && back[7] < 1.01e6f);
    static const float nan = NAN;
    sluice_f16_from_f32(bits, &nan, 1);
    sluice_f16_to_f32(back, bits, 1);
    assert_true(isnan(back[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_constructors_set_datatype_and_size),
        cmocka_unit_test(tensors_impossible_shape_has_no_size),
        cmocka_unit_test(tensors_parameters_have_their_kind),
        cmocka_unit_test(tensors_read_checks_datatype_and_size),
        cmocka_unit_test(tensors_strings_round_trip),
        cmocka_unit_test(tensors_bad_strings_are_refused),
        cmocka_unit_test(tensors_16_bit_floats_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
