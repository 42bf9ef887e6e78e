/* JSON on one line, and invalid JSON. */
#include "program/requests/json_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void json_line_is_reformatted(void **state) {
    (void)state;
    static const struct {
        const char *text, *line;
    } rows[] = {
        {"7", "7"},
        {" 1.50 ", "1.50"}, /* numbers keep their text */
        {"[1,2 ,\n3]", "[1, 2, 3]"},
        {"[]", "[]"},
        {"{\n  \"a\" : [1,\t2],\r\n  \"b\":{}\n}\n", "{\"a\": [1, 2], \"b\": {}}"},
        {"{\"a, b\":\"x:\\\"y\\\\\"}", "{\"a, b\": \"x:\\\"y\\\\\"}"},
        {"[NaN,-Infinity,true,null]", "[NaN, -Infinity, true, null]"},
        {"\"gr\xc3\xbc\xc3\x9f  e\"", "\"gr\xc3\xbc\xc3\x9f  e\""},
        {"[123456789012345678901234567890]", "[123456789012345678901234567890]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct buf out;
        buf_init(&out, arena, 0);
        assert_int_equal(json_line_check(arena, str_of(rows[i].text), &err), ST_OK);
        json_line_print(&out, str_of(rows[i].text));
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].line);
        arena_free(arena);
    }
}

/* Printing an invalid text does not read beyond it. */
static void json_line_invalid_refused(void **state) {
    (void)state;
    static const char *const rows[] = {"",      " ",       "hello", "[1,",   "[1] 2", "\"a",
                                       "\"\\",  "{\"a\":", "{1:2}", "nul",   "'a'",   "\"\n\"",
                                       "[1,,]", "\xff",    "[1]]",  "\"\\\""};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct buf out;
        buf_init(&out, arena, 0);
        assert_int_equal(json_line_check(arena, str_of(rows[i]), &err), ST_BAD_JSON);
        assert_non_null(strstr(err.text, "the value: "));
        size_t n = strlen(rows[i]);
        char *exact = arena_alloc(arena, n);
        memcpy(exact, rows[i], n);
        json_line_print(&out, str_make(exact, n));
        assert_false(out.failed);
        arena_free(arena);
    }
}

/* Nesting needs no stack. */
static void json_line_deep_nesting_is_bounded(void **state) {
    (void)state;
    enum { DEPTH = 1000000 };
    struct arena *arena = arena_new(NULL, 0);
    struct error err = {0};
    char *text = arena_alloc(arena, 2 * DEPTH);
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    assert_int_equal(json_line_check(arena, str_make(text, 2 * DEPTH), &err), ST_OK);
    assert_int_equal(json_line_check(arena, str_make(text, 2 * DEPTH - 1), &err), ST_BAD_JSON);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_line_is_reformatted),
        cmocka_unit_test(json_line_invalid_refused),
        cmocka_unit_test(json_line_deep_nesting_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
