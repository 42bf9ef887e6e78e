/* Commas, nesting, and values that need an escape or have no JSON form. */
#include "core/base/json_writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
    json_write_open(&page.json, '{');
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
    json_write_open(&page.json, '{');
    json_write_key(&page.json, "none");
    json_write_open(&page.json, '[');
    json_write_close(&page.json, ']');
    json_write_key(&page.json, "some");
    json_write_open(&page.json, '[');
    for (int i = 0; i < 2; i++) {
        json_write_separator(&page.json);
        json_write_open(&page.json, '{');
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
    json_write_open(&page.json, '{');
    json_write_f64(&page.json, "a", NAN);
    json_write_f64(&page.json, "b", -INFINITY);
    json_write_close(&page.json, '}');
    assert_page(&page, "{\"a\":0,\"b\":0}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_writer_members_are_separated),
        cmocka_unit_test(json_writer_nested_arrays_and_objects),
        cmocka_unit_test(json_writer_non_finite_is_zero),
    };
    return cmocka_run_group_tests_name("core/base/json_writer", tests, NULL, NULL);
}
