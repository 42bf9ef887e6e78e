/* Quoting. tests/interop runs the result in a shell. */
#include "program/requests/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void shell_words_are_quoted(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"", "''"},
        {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},
        {"$x`\\", "'$x`\\'"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 0);
        shell_word_print(&out, str_of(rows[i].text));
        assert_true(str_is(buf_str(&out), rows[i].word));
        arena_free(arena);
    }
}

static void shell_printf_writes_bytes(void **state) {
    (void)state;
    static const struct {
        struct str bytes;
        const char *command;
    } rows[] = {
        {{"", 0}, "printf ''"},
        {{"a-b", 3}, "printf 'a-b'"},
        {{"-n", 2}, "printf '\\055n'"},
        {{"\0\n%\\'\x7f\xff", 7}, "printf '\\000\\012\\045\\134\\047\\177\\377'"},
        {{"\0017", 2}, "printf '\\0017'"}, /* an octal escape has three digits at most */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 0);
        shell_printf_print(&out, rows[i].bytes);
        assert_true(str_is(buf_str(&out), rows[i].command));
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shell_words_are_quoted),
        cmocka_unit_test(shell_printf_writes_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
