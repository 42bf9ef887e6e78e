/* The nc command. tests/interop runs it in a shell. */
#include "program/commands/packet_command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct packet_part parts[] = {
    {{"\0\2", 2}, NULL}, {{"ab", 2}, NULL}, {{"picture", 7}, "it's.png"}, {{"c", 1}, NULL}};

static void packet_command_matches_packet(void **state) {
    (void)state;
    static const struct {
        const char *url;
        size_t first, n;
        const char *packet_file, *command;
    } rows[] = {
        {"tcp://127.0.0.1:9000", 0, 2, NULL,
         "printf '\\000\\002ab' |\nnc -q 1 127.0.0.1 9000 | od -A x -t x1z -v\n"},
        {"tcp://[::1]:9000", 0, 3, NULL,
         "{ printf '\\000\\002ab';\n  cat -- 'it'\\''s.png'; } |\n"
         "nc -q 1 ::1 9000 | od -A x -t x1z -v\n"},
        {"unix:///run/a b", 1, 3, NULL,
         "{ printf 'ab';\n  cat -- 'it'\\''s.png';\n  printf 'c'; } |\n"
         "nc -q 1 -U '/run/a b' | od -A x -t x1z -v\n"},
        {"tcp://h:1", 0, 4, "-p", "nc -q 1 h 1 <'-p' | od -A x -t x1z -v\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_url url;
        struct error err = {0};
        struct buf out;
        buf_init(&out, arena, 0);
        assert_int_equal(client_url_parse(arena, str_of(rows[i].url), &url, &err), ST_OK);
        packet_command_print(&out, &url, parts + rows[i].first, rows[i].n, rows[i].packet_file);
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].command);
        arena_free(arena);
    }
}

static void packet_command_inline_bytes_are_counted(void **state) {
    (void)state;
    assert_int_equal(packet_command_inline_bytes(parts, 4), 5);
    assert_int_equal(packet_command_inline_bytes(parts, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packet_command_matches_packet),
        cmocka_unit_test(packet_command_inline_bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
