/* What is shown of loads, and when. */
#include "program/model_server/load_progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint64_t S = 1000000000;

static void load_progress_lines_by_table(void **state) {
    (void)state;
    static const struct {
        struct repository_loads loads;
        uint64_t now_s;
        const char *line;
    } rows[] = {
        {{.n = 1, .n_start = 1, .model = "bert"}, 2, "loading bert: 2 s"},
        {{.n = 1, .n_start = 10, .n_start_done = 3, .model = "bert"},
         75,
         "loading bert: 75 s (3 of 10 models are done)"},
        /* after the start: on request */
        {{.n = 3, .n_start = 10, .n_start_done = 10, .model = "a b"},
         1,
         "loading a b: 1 s (and 2 more)"},
        {{.n = 1, .model = "m", .began_ns = UINT64_C(5000000000)}, 4, "loading m: 0 s"},
    };
    struct arena *arena = arena_new(NULL, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf line;
        buf_init(&line, arena, 0);
        load_progress_print(&line, &rows[i].loads, rows[i].now_s * S);
        buf_add_char(&line, '\0');
        assert_string_equal(line.data, rows[i].line);
    }
    arena_free(arena);
}

/* Each ten seconds of the longest load; ten seconds after the last line for the next load. */
static void load_progress_log_lines_are_ten_seconds_apart(void **state) {
    (void)state;
    static const struct {
        size_t n;
        uint64_t began_s, logged_s, now_s;
        bool due;
    } rows[] = {
        {0, 0, 0, 100, false},  {1, 5, 0, 14, false},  {1, 5, 0, 15, true},
        {1, 5, 15, 24, false},  {1, 5, 15, 25, true},  {3, 5, 15, 25, true},
        {1, 20, 15, 29, false}, {1, 20, 15, 30, true}, {1, 12, 15, 24, false},
        {1, 12, 15, 25, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct repository_loads loads = {.n = rows[i].n, .began_ns = rows[i].began_s * S};
        assert_int_equal(load_progress_is_due(&loads, rows[i].logged_s * S, rows[i].now_s * S),
                         rows[i].due);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_progress_lines_by_table),
        cmocka_unit_test(load_progress_log_lines_are_ten_seconds_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
