/* Locks: the holder is known, and a wait ends by a wake-up or by its timeout. */
#include "core/event/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"

struct ping_pong {
    struct lock lock;
    struct lock_cond cond;
    unsigned next; /* which thread is next: 0 or 1 */
    unsigned taken;
};

static void play(struct ping_pong *ping_pong, unsigned me) {
    for (unsigned i = 0; i < 1000; i++) {
        lock_acquire(&ping_pong->lock);
        while (ping_pong->next != me) {
            lock_cond_wait(&ping_pong->lock, &ping_pong->cond);
            lock_assert_held(&ping_pong->lock);
        }
        ping_pong->next = 1 - me;
        ping_pong->taken++;
        lock_cond_signal(&ping_pong->cond);
        lock_release(&ping_pong->lock);
        lock_assert_not_held(&ping_pong->lock);
    }
}

static void other_main(void *arg) {
    play(arg, 1);
}

static void lock_cond_signal_alternates_threads(void **state) {
    (void)state;
    struct ping_pong ping_pong = {.next = 0};
    lock_init(&ping_pong.lock);
    lock_cond_init(&ping_pong.cond);
    uv_thread_t other;
    assert_int_equal(uv_thread_create(&other, other_main, &ping_pong), 0);
    play(&ping_pong, 0);
    uv_thread_join(&other);
    assert_int_equal(ping_pong.taken, 2000);
    lock_cond_fini(&ping_pong.cond);
    lock_fini(&ping_pong.lock);
}

static void lock_cond_wait_until_times_out(void **state) {
    (void)state;
    struct lock lock;
    struct lock_cond cond;
    lock_init(&lock);
    lock_cond_init(&cond);
    lock_acquire(&lock);
    assert_false(lock_cond_wait_until_ns(&lock, &cond, 1)); /* long ago */
    lock_assert_held(&lock);
    uint64_t until_ns = clock_now_ns() + 2000000;
    while (lock_cond_wait_until_ns(&lock, &cond, until_ns)) {
    }
    lock_assert_held(&lock);
    lock_cond_broadcast(&cond);
    lock_release(&lock);
    lock_cond_fini(&cond);
    lock_fini(&lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_cond_signal_alternates_threads),
        cmocka_unit_test(lock_cond_wait_until_times_out),
    };
    return cmocka_run_group_tests_name("core/event/lock", tests, NULL, NULL);
}
