/* Commas, nesting, and values that need an escape or have no JSON form. */
#include "core/base/json_writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

struct page {
    char text[256];
    struct buf out;
    struct json_writer json;
};

static void page_begin(struct page *page) {
    page->out = (struct buf){.data = page->text, .cap = sizeof(page->text)};
    page->json = (struct json_writer){.out = &page->out};
}

static void assert_page(const struct page *page, const char *expected) {
    struct str text = buf_str(&page->out);
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.ptr, expected, text.len);
}

static void json_writer_members_are_separated(void **state) {
    struct page page;
    (void)state;
    page_begin(&page);
    json_write_open(&page.json, JSON_ELEMENT, '{');
    json_write_u64(&page.json, "a", UINT64_MAX);
    json_write_i64(&page.json, "b", -1);
    json_write_f64(&page.json, "c", 0.25);
    json_write_bool(&page.json, "d", true);
    json_write_string(&page.json, "e", STR("\"<\n"));
    json_write_close(&page.json, '}');
    assert_page(&page, "{\"a\":18446744073709551615,\"b\":-1,\"c\":0.25,\"d\":true,"
                       "\"e\":\"\\\"<\\n\"}");
}

static void json_writer_nested_arrays_and_objects(void **state) {
    struct page page;
    (void)state;
    page_begin(&page);
    json_write_open(&page.json, JSON_ELEMENT, '{');
    json_write_open(&page.json, "none", '[');
    json_write_close(&page.json, ']');
    json_write_open(&page.json, "some", '[');
    for (int i = 0; i < 2; i++) {
        json_write_open(&page.json, JSON_ELEMENT, '{');
        json_write_close(&page.json, '}');
    }
    json_write_close(&page.json, ']');
    json_write_bool(&page.json, "last", false);
    json_write_close(&page.json, '}');
    assert_page(&page, "{\"none\":[],\"some\":[{},{}],\"last\":false}");
}

static void json_writer_non_finite_is_zero(void **state) {
    struct page page;
    (void)state;
    page_begin(&page);
    json_write_open(&page.json, JSON_ELEMENT, '{');
    json_write_f64(&page.json, "a", NAN);
    json_write_f64(&page.json, "b", -INFINITY);
    json_write_close(&page.json, '}');
    assert_page(&page, "{\"a\":0,\"b\":0}");
}

/* The same values in each layout; an array in one line within lines. */
static void json_writer_layouts_differ_in_spaces(void **state) {
    static const struct {
        enum json_layout layout;
        const char *text;
    } rows[] = {
        {JSON_COMPACT, "{\"a\":1,\"b\":[],\"c\":[{\"d\\n\":null},[2,3]]}"},
        {JSON_SPACED, "{\"a\": 1, \"b\": [], \"c\": [{\"d\\n\": null}, [2,3]]}"},
        {JSON_LINES, "{\n  \"a\": 1,\n  \"b\": [],\n  \"c\": [\n    {\n      \"d\\n\": null\n"
                     "    },\n    [2,3]\n  ]\n}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page page;
        page_begin(&page);
        page.json.layout = rows[i].layout;
        json_write_open(&page.json, JSON_ELEMENT, '{');
        json_write_u64(&page.json, "a", 1);
        json_write_open(&page.json, "b", '[');
        json_write_close(&page.json, ']');
        json_write_open(&page.json, "c", '[');
        json_write_open(&page.json, JSON_ELEMENT, '{');
        json_write_key_str(&page.json, STR("d\n"));
        json_write_null(&page.json, JSON_ELEMENT);
        json_write_close(&page.json, '}');
        json_write_open(&page.json, JSON_ELEMENT, '[');
        page.json.layout = JSON_COMPACT;
        json_write_u64(&page.json, JSON_ELEMENT, 2);
        json_write_u64(&page.json, JSON_ELEMENT, 3);
        json_write_close(&page.json, ']');
        page.json.layout = rows[i].layout;
        json_write_close(&page.json, ']');
        json_write_close(&page.json, '}');
        assert_page(&page, rows[i].text);
    }
}

static void json_writer_values_of_each_kind(void **state) {
    struct page page;
    (void)state;
    page_begin(&page);
    json_write_open(&page.json, JSON_ELEMENT, '[');
    json_write_u64_string(&page.json, JSON_ELEMENT, UINT64_MAX);
    json_write_i64_string(&page.json, JSON_ELEMENT, INT64_MIN);
    json_write_digits(&page.json, JSON_ELEMENT, 1.0 / 3, 3);
    json_write_decimals(&page.json, JSON_ELEMENT, 2, 3);
    json_write_decimals(&page.json, JSON_ELEMENT, NAN, 1);
    static const int64_t numbers[] = {INT64_MIN, 0, -1};
    json_write_i64s(&page.json, JSON_ELEMENT, numbers, 3);
    json_write_i64s(&page.json, JSON_ELEMENT, NULL, 0);
    page.json.layout = JSON_SPACED;
    json_write_i64s(&page.json, JSON_ELEMENT, numbers + 1, 2);
    page.json.layout = JSON_COMPACT;
    json_write_raw(&page.json, JSON_ELEMENT, STR("{}"));
    json_string_print(json_write_begin(&page.json, JSON_ELEMENT), STR("x"));
    yyjson_doc *doc = yyjson_read("{\"a\": [1, -2.50, \"\\u00e9\"]}", 27, 0);
    assert_non_null(doc);
    json_write_value(&page.json, JSON_ELEMENT, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    json_write_close(&page.json, ']');
    assert_page(&page, "[\"18446744073709551615\",\"-9223372036854775808\",0.333,2.000,0.0,"
                       "[-9223372036854775808,0,-1],[], [0, -1],{},\"x\","
                       "{\"a\":[1,-2.5,\"\xc3\xa9\"]}]");
}

/* Whatever does not fit, what is written before it stays, and `failed` tells. */
static void json_writer_out_of_memory_sets_failed(void **state) {
    struct arena *arena = arena_new(NULL, 65536);
    struct buf out;
    struct json_writer json = {.out = &out};
    (void)state;
    buf_init(&out, arena, 0);
    buf_add(&out, "kept", 4);
    assert_null(buf_reserve(&out, 1 << 20));
    json_write_u64(&json, "a", 1);
    json_write_string(&json, "b", STR("x\n"));
    json_write_key_str(&json, STR("c"));
    json_write_null(&json, JSON_ELEMENT);
    assert_true(out.failed);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "kept", 4);
    arena_free(arena);
}

static void json_string_print_escapes(void **state) {
    static const struct {
        struct str text;
        const char *json;
    } rows[] = {
        {{NULL, 0}, "\"\""},
        {STR("plain"), "\"plain\""},
        {STR("\"\\/"), "\"\\\"\\\\/\""},
        {STR("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\""},
        {STR("\0\x01\x1f\x7f"), "\"\\u0000\\u0001\\u001f\x7f\""},
        {STR("a\nb\nc"), "\"a\\nb\\nc\""},
        {STR("caf\xc3\xa9"), "\"caf\xc3\xa9\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page page;
        page_begin(&page);
        json_string_print(&page.out, rows[i].text);
        assert_page(&page, rows[i].json);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_writer_members_are_separated),
        cmocka_unit_test(json_writer_nested_arrays_and_objects),
        cmocka_unit_test(json_writer_non_finite_is_zero),
        cmocka_unit_test(json_writer_layouts_differ_in_spaces),
        cmocka_unit_test(json_writer_values_of_each_kind),
        cmocka_unit_test(json_writer_out_of_memory_sets_failed),
        cmocka_unit_test(json_string_print_escapes),
    };
    return cmocka_run_group_tests_name("core/base/json_writer", tests, NULL, NULL);
}
