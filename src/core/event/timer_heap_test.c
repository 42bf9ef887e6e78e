/* The heap against a linear search, under random additions, moves and removals. */
#include "core/event/timer_heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 300, ROUNDS = 20000 };

static void timer_heap_random_operations_match_search(void **state) {
    (void)state;
    static struct timer_node items[N];
    struct timer_heap heap = {0};
    unsigned seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 1103515245 + 12345;
        struct timer_node *item = &items[seed / 65536 % N];
        if (seed / 7 % 3 == 0) {
            timer_heap_remove(&heap, item);
        } else {
            assert_true(timer_heap_set(&heap, item, seed / 3 % 1000));
        }
        uint64_t next = UINT64_MAX;
        size_t n = 0;
        for (size_t i = 0; i < N; i++) {
            n += items[i].heap_index > 0;
            next = items[i].heap_index > 0 && items[i].due_ns < next ? items[i].due_ns : next;
        }
        assert_true(timer_heap_next_ns(&heap) == next);
        assert_int_equal(heap.n, n);
    }
    uint64_t before = 0;
    assert_null(heap.n ? timer_heap_pop_due(&heap, timer_heap_next_ns(&heap) - 1) : NULL);
    while (heap.n > 0) {
        struct timer_node *item = timer_heap_pop_due(&heap, UINT64_MAX);
        assert_true(item->due_ns >= before);
        assert_int_equal(item->heap_index, 0);
        before = item->due_ns;
    }
    assert_null(timer_heap_pop_due(&heap, UINT64_MAX));
    assert_true(timer_heap_next_ns(&heap) == UINT64_MAX);
    timer_heap_fini(&heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(timer_heap_random_operations_match_search)};
    return cmocka_run_group_tests_name("core/event/timer_heap", tests, NULL, NULL);
}
