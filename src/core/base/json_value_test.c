/* The types of values, their ranges, and the words for them. */
#include "core/base/json_value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char TEXT[] =
    "{\"null\":null,\"true\":true,\"uint\":18446744073709551615,\"sint\":-5,\"real\":2.5,"
    "\"raw\":123456789012345678901234567890,\"text\":\"a\\u0000b\",\"list\":[1,[2],3],"
    "\"object\":{\"x\":1,\"y\":{\"z\":\"deep\"}},\"empty\":{},"
    "\"long\":\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddd\xc3\xa9"
    "eeeeeeeeeef\"}";

static yyjson_doc *parse(void) {
    yyjson_doc *doc = yyjson_read(TEXT, sizeof(TEXT) - 1, YYJSON_READ_BIGNUM_AS_RAW);
    assert_non_null(doc);
    return doc;
}

static void json_value_kind_and_words_match(void **state) {
    static const struct {
        const char *name;
        enum json_kind kind;
        const char *words, *config_words;
    } rows[] = {
        {"absent", JSON_ABSENT, "nothing", "nothing"},
        {"null", JSON_NULL, "null", "nothing (null)"},
        {"true", JSON_BOOL, "true", "true"},
        {"uint", JSON_UINT, "18446744073709551615", "18446744073709551615"},
        {"sint", JSON_SINT, "-5", "-5"},
        {"real", JSON_REAL, "2.5", "2.5"},
        {"raw", JSON_RAW, "123456789012345678901234567890", "123456789012345678901234567890"},
        {"text", JSON_STRING, "a string \"a?b\"", "\"a?b\""},
        {"list", JSON_ARRAY, "an array of 3", "a list of 3"},
        {"object", JSON_OBJECT, "an object of 2", "an object"},
        {"long", JSON_STRING, "a string \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddd…\"",
         "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddd\xc3\xa9"
         "eeeeee...\""},
    };
    yyjson_doc *doc = parse();
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        yyjson_val *val = json_member(doc->root, rows[i].name);
        char got[JSON_DESCRIBED_BYTES];
        assert_int_equal(json_kind_of(val), rows[i].kind);
        assert_string_equal(json_describe(val, JSON_WORDS, got), rows[i].words);
        assert_string_equal(json_describe(val, JSON_CONFIG_WORDS, got), rows[i].config_words);
    }
    yyjson_doc_free(doc);
}

static void json_get_fills_only_its_type_and_range(void **state) {
    yyjson_doc *doc = parse();
    yyjson_val *root = doc->root;
    int64_t whole = 7;
    double number = 7;
    bool boolean = false;
    struct str text = STR("unset");
    (void)state;
    assert_false(json_get_i64(json_member(root, "uint"), 0, INT64_MAX, &whole));
    assert_false(json_get_i64(json_member(root, "sint"), -4, 0, &whole));
    assert_false(json_get_i64(json_member(root, "sint"), -9, -6, &whole));
    assert_false(json_get_i64(json_member(root, "real"), 0, 9, &whole));
    assert_false(json_get_i64(NULL, 0, 9, &whole));
    assert_int_equal(whole, 7);
    assert_true(json_get_i64(json_member(root, "sint"), -5, -5, &whole));
    assert_int_equal(whole, -5);
    assert_false(json_get_f64(json_member(root, "raw"), &number));
    assert_true(number == 7);
    assert_true(json_get_f64(json_member(root, "sint"), &number));
    assert_true(number == -5);
    assert_false(json_get_bool(json_member(root, "uint"), &boolean));
    assert_true(json_get_bool(json_member(root, "true"), &boolean) && boolean);
    assert_false(json_get_string(json_member(root, "null"), &text));
    assert_true(str_is(text, "unset"));
    assert_true(json_get_string(json_member(root, "text"), &text));
    assert_int_equal(text.len, 3);
    assert_null(json_text(json_member(root, "list")).ptr);
    assert_int_equal(json_text(json_member(root, "list")).len, 0);
    yyjson_doc_free(doc);
}

static void json_iter_visits_items_of_its_type(void **state) {
    yyjson_doc *doc = parse();
    yyjson_val *root = doc->root;
    yyjson_val *list = json_member(root, "list"), *object = json_member(root, "object");
    struct json_iter item = json_elements(list);
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(json_iter_next(&item));
        assert_ptr_equal(item.value, json_element(list, i));
    }
    assert_false(json_iter_next(&item));
    assert_null(json_element(list, 3));
    item = json_members(object);
    assert_true(json_iter_next(&item) && str_is(item.name, "x"));
    assert_ptr_equal(item.value, json_member(object, "x"));
    assert_true(json_iter_next(&item) && str_is(item.name, "y"));
    assert_ptr_equal(json_key(item.value) + 1, item.value);
    assert_false(json_iter_next(&item));
    item = json_members(list);
    assert_false(json_iter_next(&item));
    item = json_elements(object);
    assert_false(json_iter_next(&item));
    item = json_elements(NULL);
    assert_false(json_iter_next(&item));
    assert_true(json_text_is(json_at(root, "/object/y/z"), "deep"));
    assert_null(json_at(root, "/object/y/w"));
    assert_null(json_at(NULL, "/object"));
    yyjson_doc_free(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_value_kind_and_words_match),
        cmocka_unit_test(json_get_fills_only_its_type_and_range),
        cmocka_unit_test(json_iter_visits_items_of_its_type),
    };
    return cmocka_run_group_tests_name("core/base/json_value", tests, NULL, NULL);
}
