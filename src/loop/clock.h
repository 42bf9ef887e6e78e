/* The monotonic clock, in nanoseconds, which a test can drive by hand. Wall-clock time is only for
 * the log and for HTTP's Date. */
#ifndef SLUICE_LOOP_CLOCK_H
#define SLUICE_LOOP_CLOCK_H

#include <stdint.h>

/* Thread: any. */
uint64_t clock_now_ns(void);
/* From now on clock_now_ns returns what the test sets (0: back to the real clock). */
void clock_drive_ns(uint64_t now_ns);

#endif
