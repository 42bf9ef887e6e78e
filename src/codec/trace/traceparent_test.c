/* traceparent: valid and invalid fields. */
#include "codec/trace/traceparent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define IDS "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"

static void traceparent_parse_rows_match(void **state) {
    static const struct {
        const char *text;
        bool is_one, sampled;
    } rows[] = {
        {"00-" IDS "-01", true, true},
        {"00-" IDS "-00", true, false},
        {"00-" IDS "-ff", true, true},
        {"00-" IDS "-02", true, false},
        {"01-" IDS "-01", true, true},
        {"cc-" IDS "-01-more", true, true},
        {"cc-" IDS "-01-", true, true},
        {"", false, false},
        {"00-" IDS "-01-", false, false}, /* version 0 has nothing after the flags */
        {"00-" IDS "-01x", false, false},
        {"cc-" IDS "-01x", false, false},
        {"ff-" IDS "-01", false, false},
        {"00-" IDS "-0", false, false},
        {"00-" IDS "-0G", false, false},
        {"0-0" IDS "-01", false, false},
        {"00_" IDS "-01", false, false},
        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", false, false},
        {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false, false},
        {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false, false},
        {" 00-" IDS "-01", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct traceparent got = {.sampled = false};
        size_t n = strlen(rows[i].text);
        char *copy = malloc(n + 1); /* of its own, for the sanitizer */
        memcpy(copy, rows[i].text, n);
        if (traceparent_parse(str_make(copy, n), &got) != rows[i].is_one ||
            (rows[i].is_one && (got.sampled != rows[i].sampled || got.trace[0] != 0x0a ||
                                got.trace[15] != 0x9c || got.span[7] != 0x31))) {
            fail_msg("%s", rows[i].text);
        }
        free(copy);
    }
}

static void traceparent_parse_prefix_is_refused(void **state) {
    const char text[] = "00-" IDS "-01";
    struct traceparent got;
    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, text, n);
        assert_false(traceparent_parse(str_make(copy, n), &got));
        free(copy);
    }
}

static void tracestate_is_valid_checks_length_and_characters(void **state) {
    char long_one[TRACESTATE_MAX_BYTES + 1];
    (void)state;
    memset(long_one, 'a', sizeof long_one);
    assert_true(tracestate_is_valid(STR("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")));
    assert_true(tracestate_is_valid(str_make(long_one, TRACESTATE_MAX_BYTES)));
    assert_false(tracestate_is_valid(str_make(long_one, sizeof long_one)));
    assert_false(tracestate_is_valid(STR("")));
    assert_false(tracestate_is_valid(STR("a=\x01")));
    assert_false(tracestate_is_valid(STR("a=\xc3\xa9")));
}

/* Whatever the generator gives: no id is 0, and none is like another. */
static void trace_id_fill_makes_valid_ids(void **state) {
    static const unsigned char zero[SPAN_ID_BYTES];
    unsigned char ids[3][SPAN_ID_BYTES] = {{0}};
    struct prng prng = {7};
    (void)state;
    trace_id_fill(&prng, (unsigned char *)ids, sizeof ids);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_not_equal(ids[i], zero, SPAN_ID_BYTES);
        assert_memory_not_equal(ids[i], ids[(i + 1) % 3], SPAN_ID_BYTES);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traceparent_parse_rows_match),
        cmocka_unit_test(traceparent_parse_prefix_is_refused),
        cmocka_unit_test(tracestate_is_valid_checks_length_and_characters),
        cmocka_unit_test(trace_id_fill_makes_valid_ids),
    };
    return cmocka_run_group_tests_name("codec/trace/traceparent", tests, NULL, NULL);
}
