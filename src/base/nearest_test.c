/* Nearest name: distances, and which slips lead to which name. */
#include "base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void distances(void **state) {
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
        assert_int_equal(nearest_distance(rows[i].a, rows[i].b), rows[i].distance);
    }
    char is_long[65];
    memset(is_long, 'a', 64);
    is_long[64] = '\0';
    assert_true(nearest_distance(is_long, "a") == SIZE_MAX);
    assert_int_equal(nearest_distance(is_long + 1, is_long + 1), 0);
}

static void suggestions(void **state) {
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
        struct nearest nearest = {0};
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
            nearest_consider(&nearest, rows[i].wanted, names[k]);
        }
        if (rows[i].best == NULL) {
            assert_null(nearest.best);
        } else {
            assert_string_equal(nearest.best, rows[i].best);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
