/* Server-sent events: the same events however the bytes arrive. */
#include "codec/http1/event_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"
#include "core/base/buf.h"

/* Takes the events of `text`, of which only the first `n` bytes are there at first. Returns: their
 * data, each in brackets, and after them the number of bytes that are left. */
static struct str take_all(struct str text, size_t n) {
    struct buf all;
    size_t at = 0, n_searched = 0;
    buf_init(&all, arena, 64);
    for (;;) {
        struct str data, rest = str_make(text.ptr + at, n - at);
        size_t n_block = event_stream_find(rest, &n_searched);
        if (n_block == 0 && n == text.len) {
            buf_printf(&all, "%zu", rest.len);
            return buf_str(&all);
        }
        if (n_block == 0) {
            n = text.len;
            continue;
        }
        assert_true(event_stream_data(arena, str_make(rest.ptr, n_block), &data));
        if (data.ptr) {
            assert_int_equal(data.ptr[data.len], '\0');
            buf_printf(&all, "[%.*s]", STR_ARG(data));
        }
        at += n_block;
    }
}

/* The text has these events at each split. */
static void expect_events(const char *text, const char *events) {
    for (size_t n = 0; n <= strlen(text); n++) {
        struct str got = take_all(str_of(text), n);
        if (!str_is(got, events)) {
            fail_msg("\"%s\", split at %zu: \"%.*s\"", text, n, STR_ARG(got));
        }
    }
}

static void event_stream_rows_match_at_every_split(void **state) {
    (void)state;
    static const struct {
        const char *text, *events;
    } rows[] = {
        {"", "0"},
        {"data: {\"a\":1}\n\n", "[{\"a\":1}]0"},
        {"data: 1\n\ndata: 2\n\n", "[1][2]0"},
        {"data: 1\r\n\r\ndata: 2\r\n\r\n", "[1][2]0"},
        {"data: 1\r\rdata: 2\r\r", "[1][2]0"},
        {"data:1\ndata:  2\ndata\n\n", "[1\n 2\n]0"},
        {": comment\n\nevent: x\nid: 7\nretry: 1\n\ndata: 1\nevent: y\n\n", "[1]0"},
        {"datum: 1\ndata2: 1\n\n", "0"},
        {"data:\n\n", "[]0"},
        {"data: a:b\n\n", "[a:b]0"},
        {"\n\n\ndata: 1\n\n\n\n", "[1]0"},
        {"data: 1\n\ndata: 2\n", "[1]8"},
        {"data: 1\n\ndata: 2", "[1]7"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        expect_events(rows[i].text, rows[i].events);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(event_stream_rows_match_at_every_split, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
