/* The field reader and writer: every kind of field, both ways, at every prefix, and malformed
 * messages. */
#include "codec/protobuf/pb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"

static struct str write_all(void) {
    static const int64_t dims[] = {1, -1, 300, INT64_MIN};
    struct buf out;
    buf_init(&out, arena, 0);
    pb_add_varint(&out, 1, 300);
    pb_add_fixed64(&out, 2, UINT64_C(0x0102030405060708));
    pb_add_string(&out, 3, STR("na\xc3\xafve"));
    pb_add_string(&out, 4, STR(""));
    size_t begun = pb_begin(&out, 536870911);
    pb_add_fixed32(&out, 15, UINT32_MAX);
    pb_add_double(&out, 16, -0.5);
    pb_add_packed_i64(&out, 17, dims, sizeof dims / sizeof dims[0]);
    pb_end(&out, begun);
    assert_false(out.failed);
    return buf_str(&out);
}

static void pb_fields_roundtrip(void **state) {
    (void)state;
    struct str message = write_all();
    /* Encoding, "A Simple Message": field 1, varint, 150 there and 300 here. */
    assert_memory_equal(message.ptr, "\x08\xac\x02\x11\x08\x07\x06\x05\x04\x03\x02\x01\x1a\x06",
                        14);
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    assert_true(pb_next(&reader, &field));
    assert_int_equal(field.number, 1);
    assert_int_equal(field.type, PB_VARINT);
    assert_int_equal(field.value, 300);
    assert_true(pb_next(&reader, &field));
    assert_int_equal(field.type, PB_FIXED64);
    assert_true(field.value == UINT64_C(0x0102030405060708));
    assert_true(pb_next(&reader, &field));
    struct str text;
    assert_int_equal(pb_get_string(&field, "text", &text, NULL), ST_OK);
    assert_true(str_is(text, "na\xc3\xafve"));
    assert_true(pb_next(&reader, &field)); /* the empty string was left out */
    assert_int_equal(field.number, 536870911);
    struct pb_reader inner = pb_read(field.bytes);
    assert_true(pb_next(&inner, &field));
    assert_int_equal(field.type, PB_FIXED32);
    assert_true(field.value == UINT32_MAX);
    assert_true(pb_next(&inner, &field));
    double half;
    memcpy(&half, &field.value, sizeof half);
    assert_true(half == -0.5);
    assert_true(pb_next(&inner, &field));
    struct pb_reader list = pb_read(field.bytes);
    static const int64_t want[] = {1, -1, 300, INT64_MIN};
    for (size_t i = 0; i < 4; i++) {
        uint64_t value;
        assert_true(pb_next_varint(&list, &value));
        assert_true((int64_t)value == want[i]);
    }
    assert_false(pb_next(&inner, &field));
    assert_null(inner.error_text);
    assert_false(pb_next(&reader, &field));
    assert_null(reader.error_text);
}

/* Each prefix in memory of its exact size: it is valid only between two fields. */
static void pb_check_prefix_is_valid_between_fields_only(void **state) {
    (void)state;
    struct str message = write_all();
    static const size_t ends[] = {0, 3, 12, 20};
    for (size_t n = 0; n < message.len; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, message.ptr, n);
        struct error err;
        bool at_end = false;
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            at_end = at_end || ends[i] == n;
        }
        assert_int_equal(pb_check(str_make(copy, n), "message", &err),
                         at_end ? ST_OK : ST_BAD_REQUEST);
        free(copy);
    }
}

static void pb_end_long_nested_message_roundtrips(void **state) {
    (void)state;
    for (size_t n = 120; n < 20000; n += 1241) {
        char *data = malloc(n);
        memset(data, 'x', n);
        struct buf out;
        buf_init(&out, arena, 0);
        size_t begun = pb_begin(&out, 1);
        size_t inner = pb_begin(&out, 2);
        pb_add_bytes(&out, 3, str_make(data, n));
        pb_end(&out, inner);
        pb_end(&out, begun);
        assert_int_equal(out.len, pb_head_bytes(1, out.len - pb_head_bytes(1, n)) +
                                      pb_head_bytes(2, n + pb_head_bytes(3, n)) +
                                      pb_head_bytes(3, n) + n);
        struct pb_reader reader = pb_read(buf_str(&out));
        struct pb_field field;
        for (int level = 0; level < 3; level++) {
            assert_true(pb_next(&reader, &field));
            reader = pb_read(field.bytes);
        }
        assert_int_equal(field.bytes.len, n);
        assert_memory_equal(field.bytes.ptr, data, n);
        free(data);
    }
}

static void pb_check_malformed_message_is_refused(void **state) {
    (void)state;
    static const struct {
        struct str bytes;
        const char *why;
    } rows[] = {
        {{"\x08", 1}, "cut off"},
        {{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11}, "more than 64 bits"},
        {{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}, "more than 64 bits"},
        {{"\x00\x01", 2}, "number is out of range"},
        {{"\x80\x80\x80\x80\x10\x01", 6}, "number is out of range"},
        {{"\x0a\x05hell", 6}, "past the end"},
        {{"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, "past the end"},
        {{"\x09\x01\x02\x03", 4}, "cut off"},
        {{"\x0d\x01\x02\x03", 4}, "cut off"},
        {{"\x0e\x01", 2}, "does not exist"},
        {{"\x0f\x01", 2}, "does not exist"},
        {{"\x0b\x08\x01", 3}, "does not end"},
        {{"\x0b\x14", 2}, "did not begin"},
        {{"\x0c", 1}, "does not exist"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err;
        assert_int_equal(pb_check(rows[i].bytes, "Thing", &err), ST_BAD_REQUEST);
        assert_non_null(strstr(err.text, rows[i].why));
        assert_non_null(strstr(err.text, "Thing"));
    }
}

static void pb_next_groups_are_skipped(void **state) {
    (void)state;
    struct pb_reader reader = pb_read(STR("\x0b\x08\x01\x13\x12\x01x\x14\x0c\x10\x07"));
    struct pb_field field;
    assert_true(pb_next(&reader, &field));
    assert_int_equal(field.number, 2);
    assert_int_equal(field.value, 7);
    assert_false(pb_next(&reader, &field));
    assert_null(reader.error_text);
}

static void pb_check_deep_groups_are_refused(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *bytes = malloc(DEPTH);
    memset(bytes, 0x0b, DEPTH);
    struct error err;
    assert_int_equal(pb_check(str_make(bytes, DEPTH), "Thing", &err), ST_BAD_REQUEST);
    assert_non_null(strstr(err.text, "too deep"));
    free(bytes);
}

static void pb_get_string_invalid_is_refused(void **state) {
    (void)state;
    struct str text;
    struct error err;
    struct pb_field number = {.number = 1, .type = PB_VARINT, .value = 1};
    assert_int_equal(pb_get_string(&number, "inputs[0].name", &text, &err), ST_BAD_FIELD);
    assert_non_null(strstr(err.text, "inputs[0].name"));
    struct pb_field bad = {.number = 1, .type = PB_BYTES, .bytes = {"ab\xff", 3}};
    assert_int_equal(pb_get_string(&bad, "id", &text, &err), ST_BAD_FIELD);
    assert_non_null(strstr(err.text, "byte 2"));
    struct pb_field nul = {.number = 1, .type = PB_BYTES, .bytes = {"a\0b", 3}};
    assert_int_equal(pb_get_string(&nul, "id", &text, &err), ST_OK);
    assert_int_equal(text.len, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pb_fields_roundtrip, setup, teardown),
        cmocka_unit_test_setup_teardown(pb_check_prefix_is_valid_between_fields_only, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(pb_end_long_nested_message_roundtrips, setup, teardown),
        cmocka_unit_test(pb_check_malformed_message_is_refused),
        cmocka_unit_test(pb_next_groups_are_skipped),
        cmocka_unit_test(pb_check_deep_groups_are_refused),
        cmocka_unit_test(pb_get_string_invalid_is_refused),
    };
    return cmocka_run_group_tests_name("codec/protobuf/pb", tests, NULL, NULL);
}
