/* The monotonic clock, in nanoseconds, which a test can set. Wall-clock time is only for the log
 * and for HTTP's Date. */
#ifndef SLUICE_CORE_EVENT_CLOCK_H
#define SLUICE_CORE_EVENT_CLOCK_H

#include <stdint.h>

/* Thread: any. */
uint64_t clock_now_ns(void);
/* Freezes the clock for the calling thread: clock_now_ns returns `now_ns` until clock_unfreeze.
 * What is done in one step then sees one time and saves the system's clock reads, which on some
 * machines take a good part of a pick. Not nested; the thread must not wait in between. */
void clock_freeze_ns(uint64_t now_ns);
void clock_unfreeze(void);
/* The time, also while the clock is frozen. Thread: any. */
uint64_t clock_read_ns(void);
/* Returns: the time `ns` after `since_ns`; UINT64_MAX, which never comes, where that is later. */
static inline uint64_t clock_after_ns(uint64_t since_ns, uint64_t ns) {
    uint64_t after_ns;
    return __builtin_add_overflow(since_ns, ns, &after_ns) ? UINT64_MAX : after_ns;
}
/* Returns: the time from `from_ns` until `until_ns`; 0 where that is earlier: a thread whose clock
 * is frozen may get a time that another thread has read since. */
static inline uint64_t clock_between_ns(uint64_t from_ns, uint64_t until_ns) {
    return until_ns > from_ns ? until_ns - from_ns : 0;
}
/* For tests: clock_now_ns and clock_read_ns return `now_ns` from now on (0: the real
 * clock). */
void clock_set_fake_ns(uint64_t now_ns);

#endif
