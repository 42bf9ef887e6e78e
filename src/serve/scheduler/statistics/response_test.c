/* Counting of responses by index, from several threads at once. */
#include "serve/scheduler/statistics/count.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void response_stats_count_by_index_and_outcome(void **state) {
    static struct statistics_responses counted;
    struct arena *arena = arena_new(NULL, 0);
    struct statistics_response *read;
    (void)state;
    assert_int_equal(statistics_responses_read(&counted, arena, &read), 0);
    statistics_response_add(&counted, 0, RESPONSE_SUCCESS, 10, 1);
    statistics_response_add(&counted, 0, RESPONSE_SUCCESS, 20, 2);
    statistics_response_add(&counted, 0, RESPONSE_FAIL, 30, 3);
    statistics_response_add(&counted, 1, RESPONSE_EMPTY, 40, 4);
    statistics_response_add(&counted, 70, RESPONSE_CANCEL, 50, 5);
    statistics_response_add(&counted, STATISTICS_RESPONSES, RESPONSE_SUCCESS, 1, 1);
    statistics_response_add(&counted, UINT64_MAX, RESPONSE_SUCCESS, 1, 1);
    assert_int_equal(statistics_responses_read(&counted, arena, &read), 71);
    assert_int_equal(read[0].success.count, 2);
    assert_int_equal(read[0].success.ns, 33);
    assert_int_equal(read[0].fail.count, 1);
    assert_int_equal(read[0].fail.ns, 33);
    assert_int_equal(read[0].infer.count, 3);
    assert_int_equal(read[0].infer.ns, 60);
    assert_int_equal(read[0].output.count, 3);
    assert_int_equal(read[0].output.ns, 6);
    assert_int_equal(read[1].empty.count, 1);
    assert_int_equal(read[1].empty.ns, 40);
    assert_int_equal(read[1].infer.count, 1);
    assert_int_equal(read[1].infer.ns, 40);
    assert_int_equal(read[1].output.count, 0);
    assert_int_equal(read[2].infer.count, 0);
    assert_int_equal(read[70].cancel.count, 1);
    assert_int_equal(read[70].cancel.ns, 50);
    assert_int_equal(read[70].infer.count, 0);
    statistics_responses_free(&counted);
    arena_free(arena);
}

static void response_stats_last_index_is_counted(void **state) {
    static struct statistics_responses counted;
    struct arena *arena = arena_new(NULL, 0);
    struct statistics_response *read;
    (void)state;
    statistics_response_add(&counted, STATISTICS_RESPONSES - 1, RESPONSE_EMPTY, 1, 0);
    assert_int_equal(statistics_responses_read(&counted, arena, &read), STATISTICS_RESPONSES);
    assert_int_equal(read[STATISTICS_RESPONSES - 1].empty.count, 1);
    assert_int_equal(read[0].infer.count, 0);
    statistics_responses_free(&counted);
    arena_free(arena);
}

enum { THREADS = 4, PLACES = 1000 };

static void *count_all(void *counted) {
    for (uint64_t i = 0; i < PLACES; i++) {
        statistics_response_add(counted, i, RESPONSE_SUCCESS, 2, 1);
    }
    return NULL;
}

static void response_stats_concurrent_adds_are_counted(void **state) {
    static struct statistics_responses counted;
    struct arena *arena = arena_new(NULL, 0);
    struct statistics_response *read;
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_all, &counted), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(statistics_responses_read(&counted, arena, &read), PLACES);
    for (int i = 0; i < PLACES; i++) {
        assert_int_equal(read[i].success.count, THREADS);
        assert_int_equal(read[i].success.ns, THREADS * 3);
    }
    statistics_responses_free(&counted);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_stats_count_by_index_and_outcome),
        cmocka_unit_test(response_stats_last_index_is_counted),
        cmocka_unit_test(response_stats_concurrent_adds_are_counted),
    };
    return cmocka_run_group_tests_name("serve/scheduler/statistics/response", tests, NULL, NULL);
}
