/* Locks: they know their holder, and a wait ends by a wake or by its time. */
#include "core/event/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"

struct turn {
    struct lock lock;
    struct lock_cond cond;
    unsigned next; /* whose turn it is: 0 or 1 */
    unsigned taken;
};

static void play(struct turn *turn, unsigned me) {
    for (unsigned i = 0; i < 1000; i++) {
        lock_take(&turn->lock);
        while (turn->next != me) {
            lock_wait(&turn->lock, &turn->cond);
            lock_assert_held(&turn->lock);
        }
        turn->next = 1 - me;
        turn->taken++;
        lock_wake_one(&turn->cond);
        lock_drop(&turn->lock);
        lock_assert_free(&turn->lock);
    }
}

static void other_main(void *arg) {
    play(arg, 1);
}

static void two_threads_take_turns(void **state) {
    (void)state;
    struct turn turn = {.next = 0};
    lock_init(&turn.lock);
    lock_cond_init(&turn.cond);
    uv_thread_t other;
    assert_int_equal(uv_thread_create(&other, other_main, &turn), 0);
    play(&turn, 0);
    uv_thread_join(&other);
    assert_int_equal(turn.taken, 2000);
    lock_cond_fini(&turn.cond);
    lock_fini(&turn.lock);
}

static void a_wait_ends_by_its_time(void **state) {
    (void)state;
    struct lock lock;
    struct lock_cond cond;
    lock_init(&lock);
    lock_cond_init(&cond);
    lock_take(&lock);
    assert_false(lock_wait_until_ns(&lock, &cond, 1)); /* long ago */
    lock_assert_held(&lock);
    uint64_t until_ns = clock_now_ns() + 2000000;
    while (lock_wait_until_ns(&lock, &cond, until_ns)) {
    }
    lock_assert_held(&lock);
    lock_wake_all(&cond);
    lock_drop(&lock);
    lock_cond_fini(&cond);
    lock_fini(&lock);
}

static void the_clock_is_driven_by_hand(void **state) {
    (void)state;
    clock_drive_ns(42);
    assert_int_equal(clock_now_ns(), 42);
    clock_drive_ns(0);
    uint64_t first = clock_now_ns();
    assert_true(first > 42);
    assert_true(clock_now_ns() >= first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_take_turns),
        cmocka_unit_test(a_wait_ends_by_its_time),
        cmocka_unit_test(the_clock_is_driven_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
