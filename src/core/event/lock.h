/* A mutex that knows who holds it, and a condition to wait for under it. Callbacks run with no lock
 * held: lock_assert_not_held says so where they start, lock_assert_held where a function needs it.
 * A lock is not recursive; taking it twice on a thread is a bug and crashes loudly.
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
    _Atomic uintptr_t holder; /* the place of the thread that holds it; 0: nobody */
};

/* Where it is, is the thread's own: nobody looks into it. */
extern THREAD_LOCAL char lock_thread_marker;

static inline bool lock_is_held(struct lock *lock) {
    return atomic_load_explicit(&lock->holder, memory_order_relaxed) ==
           (uintptr_t)&lock_thread_marker;
}

void lock_init(struct lock *lock);
void lock_fini(struct lock *lock);
void lock_acquire(struct lock *lock);
void lock_release(struct lock *lock);
/* The calling thread holds `lock`, or does not; otherwise the process ends with an assertion. */
static inline void lock_assert_held(struct lock *lock) {
    assert(lock_is_held(lock));
    (void)lock;
}
static inline void lock_assert_not_held(struct lock *lock) {
    assert(!lock_is_held(lock));
    (void)lock;
}

/* Something may have changed: whoever waits looks again. */
struct lock_cond {
    uv_cond_t cond;
};

void lock_cond_init(struct lock_cond *cond);
void lock_cond_fini(struct lock_cond *cond);
/* Drops `lock`, waits for a wake, takes `lock` again. May return without one: look at what is
 * waited for in a loop. */
void lock_cond_wait(struct lock *lock, struct lock_cond *cond);
/* The same, until clock_now_ns would say `until_ns` at the latest. Returns: false when that time
 * came without a wake. */
bool lock_cond_wait_until_ns(struct lock *lock, struct lock_cond *cond, uint64_t until_ns);
void lock_cond_signal(struct lock_cond *cond);
void lock_cond_broadcast(struct lock_cond *cond);

#endif
