/* core/must: what it allocates, and how the process ends. */
#include "core/must/must.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/buf.h"
#include "core/base/log.h"

/* Sizes that no allocator grants; volatile: the compiler warns of constants. */
static volatile size_t no_such_size = SIZE_MAX / 4, too_large_to_multiply = SIZE_MAX / 2 + 1;

static void calloc_all(void) {
    must_calloc(no_such_size, 1, "the items");
}

static void realloc_overflow(void) {
    must_realloc(NULL, too_large_to_multiply, 2, "the items");
}

static void have_none(void) {
    must_have(NULL, "the client");
}

static void arena_small_limit(void) {
    struct arena *arena = must_arena_new("the settings");
    arena_alloc(arena, no_such_size);
}

static void arena_calloc_overflow(void) {
    struct arena *arena = must_arena_new("the settings");
    arena_calloc(arena, too_large_to_multiply, 2);
}

static void arena_realloc_large(void) {
    struct arena *arena = must_arena_new("the settings");
    arena_realloc(arena, arena_alloc(arena, 10000), 10000, no_such_size);
}

static void buf_too_large(void) {
    struct arena *arena = must_arena_new("the answer");
    struct buf buf;
    buf_init(&buf, arena, 0);
    buf_reserve(&buf, no_such_size);
}

static void end_as_json(void) {
    log_configure(LOG_INFO, LOG_JSON);
    must_end("the settings");
}

/* Runs `function` in a child process. Returns: its exit code; `text` gets its standard error. */
static int run(void (*function)(void), char text[512]) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        function();
        _exit(77);
    }
    close(ends[1]);
    size_t len = 0;
    ssize_t n;
    while (len < 511 && (n = read(ends[0], text + len, 511 - len)) > 0) {
        len += (size_t)n;
    }
    text[len] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void must_without_memory_ends_with_one_line(void **state) {
    static const struct {
        void (*function)(void);
        const char *what;
    } cases[] = {
        {calloc_all, "the items"},
        {realloc_overflow, "the items"},
        {have_none, "the client"},
        {arena_small_limit, "the settings"},
        {arena_calloc_overflow, "the settings"},
        {arena_realloc_large, "the settings"},
        {buf_too_large, "the answer"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[512], expected[512];
        assert_int_equal(run(cases[i].function, text), EXIT_FAILURE);
        snprintf(expected, sizeof(expected), "sluice: out of memory for %s\n", cases[i].what);
        assert_string_equal(strstr(text, "sluice:"), expected); /* after a sanitizer's warning */
    }
}

static void must_end_with_json_log_is_one_line_of_it(void **state) {
    char text[512];
    (void)state;
    assert_int_equal(run(end_as_json, text), EXIT_FAILURE);
    assert_int_equal(text[0], '{');
    assert_non_null(strstr(text, "\"for\":\"the settings\"}\n"));
}

static void must_alloc_returns_memory_of_size(void **state) {
    (void)state;
    unsigned *items = must_calloc(3, sizeof(*items), "the items");
    assert_int_equal(items[2], 0);
    items = must_realloc(items, 1000, sizeof(*items), "the items");
    items[999] = 7;
    assert_int_equal(items[2], 0);
    free(items);
    char *text = must_dup(STR("abc"), "the text");
    assert_string_equal(text, "abc");
    free(text);
    free(must_calloc(0, 8, "nothing"));
    struct arena *arena = must_arena_new("the settings");
    assert_string_equal(arena_printf(arena, "%d", 42).ptr, "42");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(must_without_memory_ends_with_one_line),
        cmocka_unit_test(must_end_with_json_log_is_one_line_of_it),
        cmocka_unit_test(must_alloc_returns_memory_of_size),
    };
    return cmocka_run_group_tests_name("core/must", tests, NULL, NULL);
}
