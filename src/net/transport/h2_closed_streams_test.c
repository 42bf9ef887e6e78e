/* Ended streams, compared with a complete list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "net/transport/h2_closed_streams.h"

enum { N = 4000 };

static void closed_streams_initially_empty(void **state) {
    (void)state;
    struct h2_closed_streams ended = {0};
    for (int32_t id = 0; id < 2000; id++) {
        assert_false(h2_closed_streams_has(&ended, id));
    }
    h2_closed_streams_add(&ended, 1); /* never opened */
    assert_false(h2_closed_streams_has(&ended, 1));
}

static void closed_streams_add_marks_one_stream(void **state) {
    (void)state;
    struct h2_closed_streams ended = {0};
    h2_closed_streams_begin(&ended, 1);
    h2_closed_streams_begin(&ended, 3);
    assert_false(h2_closed_streams_has(&ended, 1));
    h2_closed_streams_add(&ended, 1);
    assert_true(h2_closed_streams_has(&ended, 1));
    assert_false(h2_closed_streams_has(&ended, 0)); /* shares its slot */
    assert_false(h2_closed_streams_has(&ended, 3));
    assert_false(h2_closed_streams_has(&ended, 5));
    assert_false(h2_closed_streams_has(&ended, 1 + 2 * H2_CLOSED_STREAMS)); /* this too */
    assert_false(h2_closed_streams_has(&ended, INT32_MAX));
}

/* Streams begin with gaps and end in any order; each answer is compared with a complete list. */
static void check_random(unsigned gap) {
    static bool ends[N];
    struct h2_closed_streams ended = {0};
    int32_t newest = 0;
    for (int i = 0; i < N; i++) {
        ends[i] = false;
    }
    while (newest / 2 + (int32_t)gap + 1 < N) {
        newest = (newest == 0 ? 1 : newest + 2) + 2 * (rand() % (int)gap);
        h2_closed_streams_begin(&ended, newest);
        for (int k = rand() % 3; k > 0; k--) {
            int32_t id = newest - 2 * (rand() % (H2_CLOSED_STREAMS + 9));
            h2_closed_streams_add(&ended, id);
            if (id > 0 && newest - id < 2 * H2_CLOSED_STREAMS) {
                ends[id / 2] = true;
            }
        }
        for (int32_t id = 1; id / 2 < N; id += 2) {
            bool known = id <= newest && newest - id < 2 * H2_CLOSED_STREAMS;
            assert_int_equal(h2_closed_streams_has(&ended, id), known && ends[id / 2]);
        }
    }
}

static void closed_streams_random_ids_match_model(void **state) {
    (void)state;
    srand(7);
    check_random(1);
    check_random(4);
    check_random(H2_CLOSED_STREAMS + 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_streams_initially_empty),
        cmocka_unit_test(closed_streams_add_marks_one_stream),
        cmocka_unit_test(closed_streams_random_ids_match_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
