/* Distances, and which mistyped name leads to which known one. */
#include "core/base/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void suggest_distance_counts_edits(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        size_t distance;
    } rows[] = {
        {"", "", 0},          {"http", "http", 0},      {"htp", "http", 1}, {"http", "htp", 1},
        {"htpt", "http", 1},  {"hxtp", "http", 1},      {"abcd", "", 4},    {"", "abc", 3},
        {"kitten", "sit", 4}, {"workes", "workers", 1}, {"ca", "abc", 3},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(suggest_distance(str_of(rows[i].a), str_of(rows[i].b)), rows[i].distance);
    }
    char text[SUGGEST_MAX_BYTES + 1];
    memset(text, 'a', sizeof(text));
    struct str too_long = str_make(text, sizeof(text)), longest = str_make(text, sizeof(text) - 1);
    assert_true(suggest_distance(too_long, STR("a")) == SIZE_MAX);
    assert_int_equal(suggest_distance(longest, longest), 0);
    struct suggestion suggestion = {0};
    suggest_consider(&suggestion, STR("aaaa"), too_long);
    assert_null(suggestion.best.ptr);
    suggest_consider(&suggestion, STR("aaaa"), longest);
    char hint[SUGGEST_HINT_BYTES];
    assert_int_equal(strlen(suggest_hint(&suggestion, hint)),
                     sizeof("; did you mean \"\"?") - 1 + 63);
}

static void suggest_consider_finds_similar_name(void **state) {
    (void)state;
    static const char *const names[] = {"http", "workers", "max-body-size", "max-json-size", "id"};
    static const struct {
        const char *wanted, *best;
    } rows[] = {
        {"htpp", "http"},
        {"worker", "workers"},
        {"max-bodysize", "max-body-size"},
        {"ie", "id"},
        {"max-json", "max-json-size"},
        {"wxyz", NULL},
        {"x", NULL},
        {"i", NULL},
        {"http-port", "http"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct suggestion suggestion = {0};
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
            suggest_consider(&suggestion, str_of(rows[i].wanted), str_of(names[k]));
        }
        char hint[SUGGEST_HINT_BYTES], expected[SUGGEST_HINT_BYTES] = "";
        if (rows[i].best) {
            snprintf(expected, sizeof(expected), "; did you mean \"%s\"?", rows[i].best);
        }
        assert_string_equal(suggest_hint(&suggestion, hint), expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suggest_distance_counts_edits),
        cmocka_unit_test(suggest_consider_finds_similar_name),
    };
    return cmocka_run_group_tests_name("core/base/suggest", tests, NULL, NULL);
}
