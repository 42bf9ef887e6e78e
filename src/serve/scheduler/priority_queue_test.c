/* The order of service, compared with a sort, under random additions and removals. */
#include "serve/scheduler/priority_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 60, LEVELS = 4, ROUNDS = 20000 };

/* A call that the test adds and removes. */
struct item {
    struct call call;
    struct call_run run;
    bool in;
    unsigned arrived;
};

static unsigned class_of(const struct item *item) {
    return (unsigned)item->call.run->queue_deadline.level * 2 +
           (item->call.run->queue_deadline.deprioritized ? 1 : 0);
}

static int by_service(const void *a, const void *b) {
    const struct item *left = *(const struct item *const *)a;
    const struct item *right = *(const struct item *const *)b;
    unsigned x = class_of(left), y = class_of(right);
    if (x == y) {
        x = left->arrived;
        y = right->arrived;
    }
    return x < y ? -1 : x > y;
}

static void check(const struct priority_queue *queue, struct item *items) {
    struct item *sorted[N];
    size_t n = 0, at_level[LEVELS] = {0};
    for (size_t i = 0; i < N; i++) {
        if (items[i].in) {
            sorted[n++] = &items[i];
            at_level[items[i].call.run->queue_deadline.level]++;
        }
    }
    qsort(sorted, n, sizeof(sorted[0]), by_service);
    assert_int_equal(queue->n, n);
    const struct call *call = TAILQ_FIRST(&queue->calls), *before = NULL;
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(call, &sorted[i]->call);
        assert_ptr_equal(TAILQ_PREV(call, call_list, run->queue_link), before);
        before = call;
        call = TAILQ_NEXT(call, run->queue_link);
    }
    assert_null(call);
    for (size_t level = 0; level < LEVELS; level++) {
        assert_int_equal(priority_queue_count_level(queue, level), at_level[level]);
    }
}

static void priority_queue_random_operations_match_sorted_order(void **state) {
    (void)state;
    static struct item items[N];
    struct arena *arena = arena_new(NULL, 0);
    struct priority_queue queue;
    struct error err;
    unsigned seed = 1;
    assert_int_equal(priority_queue_init(&queue, arena, LEVELS, &err), ST_OK);
    for (size_t i = 0; i < N; i++) {
        items[i].call.run = &items[i].run;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        seed = seed * 1103515245 + 12345;
        struct item *item = &items[seed / 65536 % N];
        if (item->in) {
            priority_queue_remove(&queue, &item->call);
            item->in = false;
        } else {
            item->call.run->queue_deadline.level = seed / 7 % LEVELS;
            item->call.run->queue_deadline.deprioritized = seed / 31 % 3 == 0;
            item->arrived = round;
            item->in = true;
            priority_queue_add(&queue, &item->call);
        }
        check(&queue, items);
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priority_queue_random_operations_match_sorted_order)};
    return cmocka_run_group_tests_name("serve/scheduler/priority_queue", tests, NULL, NULL);
}
