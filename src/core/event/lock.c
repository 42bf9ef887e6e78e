/* Locks over libuv's, with the holder stored. A mutex that cannot be made or taken aborts the
 * process. */
#include "core/event/lock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/event/clock.h"

THREAD_LOCAL char lock_thread_marker;

void lock_init(struct lock *lock) {
    atomic_init(&lock->holder, 0);
    if (uv_mutex_init(&lock->mutex) != 0) {
        abort();
    }
}

void lock_fini(struct lock *lock) {
    assert(atomic_load_explicit(&lock->holder, memory_order_relaxed) == 0);
    uv_mutex_destroy(&lock->mutex);
}

void lock_acquire(struct lock *lock) {
    lock_assert_not_held(lock);
    uv_mutex_lock(&lock->mutex);
    atomic_store_explicit(&lock->holder, (uintptr_t)&lock_thread_marker, memory_order_relaxed);
}

void lock_release(struct lock *lock) {
    lock_assert_held(lock);
    atomic_store_explicit(&lock->holder, 0, memory_order_relaxed);
    uv_mutex_unlock(&lock->mutex);
}

void lock_cond_init(struct lock_cond *cond) {
    if (uv_cond_init(&cond->cond) != 0) {
        abort();
    }
}

void lock_cond_fini(struct lock_cond *cond) {
    uv_cond_destroy(&cond->cond);
}

void lock_cond_wait(struct lock *lock, struct lock_cond *cond) {
    lock_assert_held(lock);
    atomic_store_explicit(&lock->holder, 0, memory_order_relaxed);
    uv_cond_wait(&cond->cond, &lock->mutex);
    atomic_store_explicit(&lock->holder, (uintptr_t)&lock_thread_marker, memory_order_relaxed);
}

bool lock_cond_wait_until_ns(struct lock *lock, struct lock_cond *cond, uint64_t until_ns) {
    lock_assert_held(lock);
    uint64_t now_ns = clock_now_ns();
    if (until_ns <= now_ns) {
        return false;
    }
    atomic_store_explicit(&lock->holder, 0, memory_order_relaxed);
    int rc = uv_cond_timedwait(&cond->cond, &lock->mutex, until_ns - now_ns);
    atomic_store_explicit(&lock->holder, (uintptr_t)&lock_thread_marker, memory_order_relaxed);
    return rc == 0;
}

void lock_cond_signal(struct lock_cond *cond) {
    uv_cond_signal(&cond->cond);
}

void lock_cond_broadcast(struct lock_cond *cond) {
    uv_cond_broadcast(&cond->cond);
}
