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
/* For tests: clock_now_ns returns `now_ns` from now on (0: the real clock). */
void clock_set_fake_ns(uint64_t now_ns);

#endif
