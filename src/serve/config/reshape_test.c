/* Reshaping: valid pairs of shapes, and the position of each -1. */
#include "serve/config/resolve_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MAX = 6, END = -2 };

static struct shape shape_until_end(const int64_t dims[MAX]) {
    size_t rank = 0;
    while (rank < MAX && dims[rank] != END) {
        rank++;
    }
    return (struct shape){dims, rank};
}

struct pair {
    int64_t from[MAX], to[MAX];
    bool sound;
};

static const struct pair pairs[] = {
    {{4, END}, {2, 2, END}, true},
    {{1, END}, {END}, true},
    {{END}, {1, 1, END}, true},
    {{4, END}, {5, END}, false},
    {{2, END}, {END}, false},
    {{-1, END}, {-1, END}, true},
    {{-1, END}, {1, -1, 1, END}, true},
    {{-1, END}, {2, -1, END}, false},
    {{-1, END}, {2, END}, false},
    {{2, END}, {-1, END}, false},
    {{-1, 6, -1, END}, {-1, 2, 3, -1, END}, true},
    {{-1, 6, -1, END}, {-1, -1, 6, END}, false},
    {{-1, -1, END}, {-1, END}, false},
    {{INT64_MAX, 4, END}, {4, INT64_MAX, END}, false}, /* the product overflows 64 bits */
};

static void reshape_is_valid_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct shape from = shape_until_end(pairs[i].from), to = shape_until_end(pairs[i].to);
        if (reshape_is_valid(from, to) != pairs[i].sound ||
            reshape_is_valid(to, from) != pairs[i].sound) {
            fail_msg("pair %zu", i);
        }
    }
}

struct applied {
    int64_t from[MAX], to[MAX], actual[MAX], expected[MAX];
};

static const struct applied applications[] = {
    {{4, END}, {2, 2, END}, {4, END}, {2, 2, END}},
    {{-1, 1, END}, {-1, END}, {7, 1, END}, {7, END}},
    {{-1, END}, {-1, 1, 1, END}, {7, END}, {7, 1, 1, END}},
    {{-1, 6, -1, END}, {-1, 2, 3, -1, END}, {5, 6, 0, END}, {5, 2, 3, 0, END}},
    {{1, END}, {END}, {1, END}, {END}},
};

static void reshape_apply_variable_dimensions_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(applications) / sizeof(applications[0]); i++) {
        const struct applied *row = &applications[i];
        struct shape to = shape_until_end(row->to), expected = shape_until_end(row->expected);
        int64_t out[MAX];
        assert_true(
            reshape_apply(shape_until_end(row->from), to, shape_until_end(row->actual), out));
        assert_true(shape_eq((struct shape){out, to.rank}, expected));
    }
}

static void reshape_apply_mismatched_shape_is_refused(void **state) {
    const int64_t from[] = {-1, 4}, to[] = {-1, 2, 2}, wrong[] = {3, 5};
    int64_t out[3];
    (void)state;
    assert_false(reshape_apply((struct shape){from, 2}, (struct shape){to, 3},
                               (struct shape){wrong, 2}, out));
    assert_false(reshape_apply((struct shape){from, 2}, (struct shape){to, 3},
                               (struct shape){wrong, 1}, out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape_is_valid_by_table),
        cmocka_unit_test(reshape_apply_variable_dimensions_by_table),
        cmocka_unit_test(reshape_apply_mismatched_shape_is_refused),
    };
    return cmocka_run_group_tests_name("serve/config/reshape", tests, NULL, NULL);
}
