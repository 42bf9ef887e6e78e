/* The arguments of `sluice bench`: valid and invalid combinations. The error texts are on
 * standard error, which tests/interop checks. */
#include "program/loadgen/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Arguments separated by '|'. Returns: what bench_settings_read returns. */
static int read_line(struct arena *arena, const char *line, struct bench_settings *out) {
    char bench[] = "bench";
    char *argv[32] = {bench};
    int argc = 1;
    struct str rest = str_of(line);
    while (rest.ptr) {
        argv[argc++] = (char *)(uintptr_t)arena_dup(arena, str_cut(&rest, '|')).ptr;
    }
    return bench_settings_read(argc, argv, arena, out);
}

static void bench_settings_defaults(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct bench_settings settings;
    assert_int_equal(read_line(arena, "http://h:1|m", &settings), -1);
    assert_string_equal(settings.options.model, "m");
    assert_false(settings.mip);
    assert_int_equal(settings.plan.n_steps, 3);
    assert_int_equal(settings.options.duration_ns, 5000000000);
    assert_int_equal(settings.options.warm_up_ns, 1000000000);
    assert_int_equal(settings.options.n_requests, 0);
    assert_int_equal(settings.options.form, BENCH_FORM_BINARY);
    assert_int_equal(settings.options.data, BENCH_DATA_RANDOM);
    assert_int_equal(settings.options.batch, 1);
    assert_true(str_is(settings.command_line, "sluice bench http://h:1 m"));
    arena_free(arena);
}

static void bench_settings_command_line_is_quoted(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct bench_settings settings;
    assert_int_equal(read_line(arena, "tcp://h:1|--text|it's a|-c|1:8:x2", &settings), -1);
    assert_true(settings.mip);
    assert_null(settings.options.model);
    assert_true(
        str_is(settings.command_line, "sluice bench tcp://h:1 --text 'it'\\''s a' -c 1:8:x2"));
    arena_free(arena);
}

static void bench_settings_valid_accepted(void **state) {
    (void)state;
    static const char *const lines[] = {
        "http://h|m|--rate|10,20|--arrival|poisson",
        "http://h|--ping",
        "tcp://h:1|--ping",
        "unix:///s|--ping|--reconnect",
        "http+unix:/s|m|--input|a=1|--shape|b=1,2|--shape|c:1,2",
        "tcp://h:1|--text|a|--json-item|1|--inputs|2",
        "tcp://h:1|--image|f|--batch|8",
        "http://h|m|--json|-|--html|x",
        "https://h|m|--cacert|f|--cert|c|--key|k",
        "https://h|m|--insecure",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct bench_settings settings;
        if (read_line(arena, lines[i], &settings) != -1) {
            fail_msg("%s", lines[i]);
        }
        arena_free(arena);
    }
}

static void bench_settings_invalid_refused(void **state) {
    (void)state;
    static const char *const lines[] = {
        "http://h", /* no model */
        "h|m",
        "ftp://h|m",
        "http://h|m|--cacert|f", /* there is no TLS */
        "https://h|m|--key|f",   /* without a certificate */
        "tcp://h:1|m|--text|a",  /* MIP has no model names */
        "tcp://h:1",
        "http://h|m|--ping",
        "http://h|--ping|--batch|2",
        "http://h|--ping|--input|a=1",
        "tcp://h:1|--ping|--text|a",
        "tcp://h:1|--text|a|--form|json",
        "http://h|m|--text|a",
        "tcp://h:1|--text|a|--inputs|2",
        "http://h|m|--arrival|poisson",
        "http://h|m|--concurrency|0",
        "http://h|m|--rate|fast",
        "http://h|m|--rate|1|--concurrency|1,2",
        "http://h|m|--form|raw|--output|x",
        "http://h|m|--json|x|--html|x",
        "http://h|m|--batch|0",
        "http://h|m|--duration|0",
        "http://h|m|more",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct bench_settings settings;
        if (read_line(arena, lines[i], &settings) != 2) {
            fail_msg("%s was taken", lines[i]);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_settings_defaults),
        cmocka_unit_test(bench_settings_command_line_is_quoted),
        cmocka_unit_test(bench_settings_valid_accepted),
        cmocka_unit_test(bench_settings_invalid_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
