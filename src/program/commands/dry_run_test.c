/* The dump of bytes, the curl and the nc command. tests/interop runs the commands in a shell. */
#include "program/commands/dry_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void curl_command_matches_request(void **state) {
    (void)state;
    static const struct {
        const char *url;
        struct str body;
        const char *body_file, *command;
        struct tls_client_options tls;
    } rows[] = {
        {"https://h/b",
         {"{}", 2},
         NULL,
         "curl -sS --http1.1 --cacert 'a b' --cert 'c' --key 'k' --insecure \\\n  -H 'A: b' \\\n"
         "  -H 'Accept:' -H 'Expect:' \\\n  --data-binary '{}' \\\n  'https://h/p'\n",
         {"a b", "c", "k", true}},
        {"http://h:8000/b",
         {"{\"a\":1}", 7},
         NULL,
         "curl -sS --http1.1 \\\n  -H 'A: b' \\\n  -H 'Accept:' -H 'Expect:' \\\n"
         "  --data-binary '{\"a\":1}' \\\n  'http://h:8000/p'\n",
         {0}},
        {"http+unix:/run/x",
         {"-\0%\\'\xff", 6},
         NULL,
         "printf '\\055\\000\\045\\134\\047\\377' |\ncurl -sS --http1.1 --unix-socket '/run/x' "
         "\\\n  -H 'A: b' \\\n  -H 'Accept:' -H 'Expect:' \\\n  --data-binary @- \\\n"
         "  'http://localhost/p'\n",
         {0}},
        {"http://h",
         {"@etc", 4},
         NULL,
         "printf '@etc' |\ncurl -sS --http1.1 \\\n  -H 'A: b' \\\n  -H 'Accept:' -H 'Expect:' \\\n"
         "  --data-binary @- \\\n  'http://h/p'\n",
         {0}},
        {"http://h",
         {"x", 1},
         "a b",
         "curl -sS --http1.1 \\\n  -H 'A: b' \\\n  -H 'Accept:' -H 'Expect:' \\\n"
         "  --data-binary '@a b' \\\n  'http://h/p'\n",
         {0}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct client_url url;
        struct piece piece = {rows[i].body.ptr, rows[i].body.len};
        struct client_request request = {
            .path = STR("/p"),
            .head = STR("POST /p HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: 9\r\n\r\n"),
            .body = {.pieces = &piece, .n_pieces = 1, .n_bytes = piece.n_bytes}};
        struct buf out;
        buf_init(&out, arena, 0);
        assert_int_equal(client_url_parse(arena, str_of(rows[i].url), &url, &err), ST_OK);
        curl_command_print(&out, &url, &rows[i].tls, &request, rows[i].body_file);
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].command);
        arena_free(arena);
    }
}

static void hexdump_lines_are_printed(void **state) {
    (void)state;
    static const struct {
        struct str bytes;
        uint64_t offset;
        const char *text;
    } rows[] = {
        {{"", 0}, 0, ""},
        {{"A\n\xff", 3}, 16, "00000010  41 0a ff                                          |A..|\n"},
        {{"0123456789abcdefg", 17},
         0,
         "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|\n"
         "00000010  67                                                |g|\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 0);
        hexdump_print(&out, rows[i].bytes, rows[i].offset);
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].text);
        arena_free(arena);
    }
}

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
        cmocka_unit_test(curl_command_matches_request),
        cmocka_unit_test(hexdump_lines_are_printed),
        cmocka_unit_test(packet_command_matches_packet),
        cmocka_unit_test(packet_command_inline_bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
