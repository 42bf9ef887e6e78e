/* The monotonic clock, in nanoseconds, which a test can drive by hand. Wall-clock time is only for
 * the log and for HTTP's Date. */
#ifndef SLUICE_CORE_EVENT_CLOCK_H
#define SLUICE_CORE_EVENT_CLOCK_H

#include <stdint.h>

/* Thread: any. */
uint64_t clock_now_ns(void);
/* Time stands still for the calling thread: clock_now_ns says `now_ns` until clock_unfreeze. What
 * is done at one moment then sees one time, and looking at it costs nothing, which on some machines
 * is a good part of a pick. Not nested, and nobody waits in between. */
void clock_freeze_ns(uint64_t now_ns);
void clock_unfreeze(void);
/* From now on clock_now_ns returns what the test sets (0: back to the real clock). */
void clock_set_fake_ns(uint64_t now_ns);

#endif
