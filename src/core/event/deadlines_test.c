/* The heap against a plain search, under random additions, moves and removals. */
#include "core/event/deadlines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 300, ROUNDS = 20000 };

static void test_against_a_search(void **state) {
    (void)state;
    static struct deadline items[N];
    struct deadlines heap = {0};
    unsigned seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 1103515245 + 12345;
        struct deadline *item = &items[seed / 65536 % N];
        if (seed / 7 % 3 == 0) {
            deadlines_remove(&heap, item);
        } else {
            assert_true(deadlines_set(&heap, item, seed / 3 % 1000));
        }
        uint64_t next = UINT64_MAX;
        size_t n = 0;
        for (size_t i = 0; i < N; i++) {
            n += items[i].place > 0;
            next = items[i].place > 0 && items[i].due_ns < next ? items[i].due_ns : next;
        }
        assert_true(deadlines_next_ns(&heap) == next);
        assert_int_equal(heap.n, n);
    }
    uint64_t before = 0;
    assert_null(heap.n ? deadlines_take_due(&heap, deadlines_next_ns(&heap) - 1) : NULL);
    while (heap.n > 0) {
        struct deadline *item = deadlines_take_due(&heap, UINT64_MAX);
        assert_true(item->due_ns >= before);
        assert_int_equal(item->place, 0);
        before = item->due_ns;
    }
    assert_null(deadlines_take_due(&heap, UINT64_MAX));
    assert_true(deadlines_next_ns(&heap) == UINT64_MAX);
    deadlines_fini(&heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
