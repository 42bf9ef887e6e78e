/* When does a model count as quick? */
#include "model/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct run {
    int n;
    uint64_t us;
};

struct row {
    const char *why;
    struct run runs[6]; /* n 0: the end */
    bool cheap;
};

static const struct row rows[] = {
    {"nothing is known", {{0, 0}}, false},
    {"not enough runs", {{11, 10}}, false},
    {"enough quick runs", {{12, 10}}, true},
    {"a few of the window may be slow", {{4, 500}, {12, 10}}, true},
    {"too many were slow", {{5, 500}, {11, 10}}, false},
    {"neither quick nor slow", {{100, 70}}, false},
    {"quick, then in between: it stays", {{12, 10}, {100, 70}}, true},
    {"three slow ones are forgiven", {{12, 10}, {3, 200}}, true},
    {"four are not", {{12, 10}, {4, 200}}, false},
    {"forgiven ones are forgotten", {{12, 10}, {3, 200}, {16, 10}, {3, 200}}, true},
    {"one stall is enough", {{40, 10}, {1, 1500}}, false},
    {"after a stall it starts anew", {{40, 10}, {1, 1500}, {11, 10}}, false},
    {"and may come back", {{40, 10}, {1, 1500}, {12, 10}}, true},
    {"slow before it was quick does not count", {{4, 500}, {12, 10}, {3, 200}}, true},
};

static void each_history(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pace pace;
        pace_init(&pace);
        for (const struct run *run = rows[i].runs; run->n > 0; run++) {
            for (int n = 0; n < run->n; n++) {
                pace_add(&pace, run->us * 1000);
            }
        }
        if (pace_is_cheap(&pace) != rows[i].cheap) {
            fail_msg("%s", rows[i].why);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_history)};
    return cmocka_run_group_tests_name("model/pace", tests, NULL, NULL);
}
