/* Each length of the last group, with and without padding, and what is no base64. */
#include "core/base/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void base64_parse_inverts_print(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    size_t at;
    (void)state;
    static const struct {
        struct str bytes;
        const char *bare, *padded;
    } rows[] = {
        {{"", 0}, "", ""},
        {{"f", 1}, "Zg", "Zg=="},
        {{"fo", 2}, "Zm8", "Zm8="},
        {{"foo", 3}, "Zm9v", "Zm9v"},
        {{"\xff\xfe\x00\x01", 4}, "//4AAQ", "//4AAQ=="},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out;
        struct str back;
        buf_init(&out, arena, 8);
        base64_print(&out, rows[i].bytes);
        assert_true(str_is(buf_str(&out), rows[i].bare));
        assert_int_equal(base64_parse(arena, str_of(rows[i].bare), &back, &at), ST_OK);
        assert_true(str_eq(back, rows[i].bytes));
        assert_int_equal(base64_parse(arena, str_of(rows[i].padded), &back, &at), ST_OK);
        assert_true(str_eq(back, rows[i].bytes));
        assert_true(base64_is_valid(str_of(rows[i].padded)));
    }
    static const char *const bad[] = {"Z", "Zg=", "Zm9vZ", "====", "Zm 9", "Zm9-", "Zg=a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct str back;
        assert_int_equal(base64_parse(arena, str_of(bad[i]), &back, &at), ST_BAD_REQUEST);
        assert_false(base64_is_valid(str_of(bad[i])));
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(base64_parse_inverts_print)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
