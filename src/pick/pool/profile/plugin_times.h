/* How long the plugins of a profile take. A clock read before and after each plugin would be a
 * tenth of a short pick, so that each reader measures one run of a profile in
 * PLUGIN_TIMES_INTERVAL, beginning with its first.
 *
 * Thread: struct plugin_clock belongs to one thread; struct plugin_times is for any. */
#ifndef SLUICE_PICK_POOL_PROFILE_PLUGIN_TIMES_H
#define SLUICE_PICK_POOL_PROFILE_PLUGIN_TIMES_H

#include "core/base/metric/histogram.h"
#include "core/base/str.h"
#include "core/event/clock.h"
#include "core/event/lock.h"
#include "pick/pool/prefix/table.h"

enum { PLUGIN_TIMES_INTERVAL = 256 };

/* ---- of one run of a profile ----------------------------------------------------------------- */

/* Steps are numbered in order: the filters, the scorers, the picker. Of a longer profile the first
 * ones are measured. */
enum { PLUGIN_CLOCK_STEPS = 64 };

struct plugin_clock {
    uint64_t begun_ns;
    uint64_t steps, producers; /* a bit for each that ran */
    uint64_t step_ns[PLUGIN_CLOCK_STEPS];
    uint64_t producer_ns[PREFIX_MAX_INDEXES]; /* of prefixes, by their numbers */
};

/* Begins a step; a clock that is NULL does nothing, here and below. */
static inline void plugin_clock_begin(struct plugin_clock *clock) {
    if (clock) {
        clock->begun_ns = clock_read_ns();
    }
}

/* Ends it. A step with several parts is the sum of them. */
static inline void plugin_clock_end_step(struct plugin_clock *clock, size_t step) {
    if (clock && step < PLUGIN_CLOCK_STEPS) {
        uint64_t bit = UINT64_C(1) << step, before = clock->steps & bit ? clock->step_ns[step] : 0;
        clock->steps |= bit;
        clock->step_ns[step] = before + clock_between_ns(clock->begun_ns, clock_read_ns());
    }
}

static inline void plugin_clock_end_producer(struct plugin_clock *clock, uint32_t index) {
    if (clock) {
        clock->producers |= UINT64_C(1) << index;
        clock->producer_ns[index] = clock_between_ns(clock->begun_ns, clock_read_ns());
    }
}

/* ---- of all ---------------------------------------------------------------------------------- */

/* What a plugin does, with upstream's names. */
enum plugin_point { POINT_FILTER, POINT_SCORER, POINT_PICKER, POINT_PRODUCER };
const char *plugin_point_name(enum plugin_point point);

extern const struct metric_scale PLUGIN_TIMES;
enum { PLUGIN_TIMES_CELLS = 12, PLUGIN_TIMES_MAX_ROWS = 128 };

struct plugin_times_row {
    enum plugin_point point;
    const char *type;
    struct str name;
    metric_cell cells[PLUGIN_TIMES_CELLS];
};
/* Whether they are of the same plugin, in two pools. */
bool plugin_times_same(const struct plugin_times_row *one, const struct plugin_times_row *other);

/* A row for each plugin of the configurations so far; of further ones than PLUGIN_TIMES_MAX_ROWS
 * there are none. */
struct plugin_times {
    struct lock lock;
    struct plugin_times_row *rows[PLUGIN_TIMES_MAX_ROWS];
    _Atomic size_t n;
};

void plugin_times_init(struct plugin_times *times);
void plugin_times_fini(struct plugin_times *times);

struct profile;
/* Adds a run of the profile. Takes the lock. */
void plugin_times_add(struct plugin_times *times, const struct profile *profile,
                      const struct plugin_clock *clock);

#endif
