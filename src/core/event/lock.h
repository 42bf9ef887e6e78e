/* A mutex that stores its holder, and a condition variable. Callbacks run with no lock held:
 * lock_assert_not_held checks it where they start, lock_assert_held where a function needs the
 * lock. A lock is not recursive; taking it twice on a thread aborts.
 *
 * Thread: any, for everything but init and fini. */
#ifndef SLUICE_CORE_EVENT_LOCK_H
#define SLUICE_CORE_EVENT_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "core/base/compiler.h"

struct lock {
    uv_mutex_t mutex;
    _Atomic uintptr_t holder; /* the address of the holding thread's marker; 0: not held */
};

/* Its address identifies the thread; its value is not used. */
extern THREAD_LOCAL char lock_thread_marker;

static inline bool lock_is_held(struct lock *lock) {
    return atomic_load_explicit(&lock->holder, memory_order_relaxed) ==
           (uintptr_t)&lock_thread_marker;
}

void lock_init(struct lock *lock);
void lock_fini(struct lock *lock);
void lock_acquire(struct lock *lock);
void lock_release(struct lock *lock);
/* Asserts that the calling thread holds `lock`, or does not. */
static inline void lock_assert_held(struct lock *lock) {
    assert(lock_is_held(lock));
    (void)lock;
}
static inline void lock_assert_not_held(struct lock *lock) {
    assert(!lock_is_held(lock));
    (void)lock;
}

/* A condition variable: signalled when the state that waiters wait for may have changed. */
struct lock_cond {
    uv_cond_t cond;
};

void lock_cond_init(struct lock_cond *cond);
void lock_cond_fini(struct lock_cond *cond);
/* Releases `lock`, waits for a wake-up, takes `lock` again. It may return without one: call it in a
 * loop that checks the condition. */
void lock_cond_wait(struct lock *lock, struct lock_cond *cond);
/* The same, until the time `until_ns` of clock_now_ns at the latest. Returns: false when it timed
 * out. */
bool lock_cond_wait_until_ns(struct lock *lock, struct lock_cond *cond, uint64_t until_ns);
/* Wake one waiter, or all of them. */
void lock_cond_signal(struct lock_cond *cond);
void lock_cond_broadcast(struct lock_cond *cond);

#endif
