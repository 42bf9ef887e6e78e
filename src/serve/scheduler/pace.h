/* Is a model fast enough to run on the worker that read the request? Decided from how long its
 * recent executions took: most of them must be short before it may, a few long ones (or one very
 * long) end it. Between the two thresholds nothing changes, so that it does not flap.
 *
 * Requests that are executed together take longer than one. That is no word against the model, but
 * against so many at once on a worker: fewer then, until they are short again. It refuses to read
 * the clock.
 *
 * Thread: any. Two threads that add at once may lose one of the two observations; that is
 * allowed. */
#ifndef SLUICE_SERVE_SCHEDULER_PACE_H
#define SLUICE_SERVE_SCHEDULER_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PACE_FAST_NS = 50 * 1000,    /* shorter counts for running on the worker */
    PACE_SLOW_NS = 100 * 1000,   /* longer counts against; and a worker that has spent so long on
                                    models in one turn begins with no more of them */
    PACE_STALL_NS = 1000 * 1000, /* one of these is enough against */
    PACE_WINDOW = 16,            /* executions remembered */
    PACE_FAST_NEEDED = 12,
    PACE_SLOW_ALLOWED = 3,
};

struct pace {
    _Atomic uint32_t history; /* low half: a bit per fast execution; high half: per slow one; newest
                                 lowest */
    atomic_bool cheap;
    atomic_size_t together;
};

void pace_init(struct pace *pace);
/* An execution of `n` requests took `ns`. */
void pace_add(struct pace *pace, uint64_t ns, size_t n);
static inline bool pace_is_cheap(const struct pace *pace) {
    return atomic_load_explicit(&pace->cheap, memory_order_relaxed);
}
/* How many requests a worker may execute together. */
static inline size_t pace_together(const struct pace *pace) {
    return atomic_load_explicit(&pace->together, memory_order_relaxed);
}

#endif
