/* Pick statistics of a worker: the time that picks took, and the outcome of requests by pool, model
 * and target. One thread writes, with plain stores; any thread reads, without a lock, and sums over
 * the workers.
 *
 * There is a row for each model of the pools' configuration, and two more for all others, so that
 * model names made up by clients take no memory. A row stays when its model leaves the
 * configuration.
 *
 * Thread: pick_stats_get_row and changing its cells: the worker's; reading: any. */
#ifndef SLUICE_PICK_SESSION_STATS_H
#define SLUICE_PICK_SESSION_STATS_H

#include "core/base/arena.h"
#include "core/base/metric/histogram.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* The parts of a pick's time. */
enum pick_phase_time {
    PICK_TIME_HEADERS, /* from receiving the request's headers to sending the pick */
    PICK_TIME_BODY,    /* the same, from the body message that named the model */
    PICK_TIME_WAIT,    /* from the headers to that body message */
    N_PICK_TIMES,
};
extern const char *const PICK_TIME_NAMES[N_PICK_TIMES];

/* A model as requests to a pool name it, and its target from the configuration. */
struct pick_stats_row {
    struct str pool, model, target;
    metric_cell n_picked, n_ended;
    metric_cell n_refused[ST_COUNT_];
    struct metric_histogram times; /* of requests, to the end of their responses */
};

/* The rows of a worker; further models count as PICK_MODEL_OTHER. */
enum { PICK_MAX_ROWS = 4096, PICK_ROW_SLOTS = 2 * PICK_MAX_ROWS };

/* Zeroed memory is empty. */
struct pick_stats {
    struct metric_histogram times[N_PICK_TIMES];
    struct pick_stats_row *_Atomic slots[PICK_ROW_SLOTS];
    size_t n_rows;
    struct pick_stats_row *last; /* of the last look-up: the next is often the same */
};

void pick_stats_fini(struct pick_stats *stats);

#define PICK_MODEL_OTHER STR("(other)") /* a name that the configuration does not contain */
#define PICK_MODEL_NONE STR("(none)")   /* none is named, or models make no difference */

/* Finds or adds the row. Returns: NULL when out of memory. */
struct pick_stats_row *pick_stats_get_row(struct pick_stats *stats, struct str pool,
                                          struct str model, struct str target);

/* ---- reading --------------------------------------------------------------------------------- */

/* A row summed over workers. */
struct pick_stats_sum {
    struct str pool, model, target; /* views of a worker's row */
    uint64_t n_picked, n_running;
    uint64_t n_refused[ST_COUNT_];
    struct metric_distribution times;
};

/* Sorted by pool, model and target, each once. Returns: ST_NO_MEMORY. Owns: the array is in
 * `arena`. */
enum status pick_stats_sum_all(const struct pick_stats *const *all_stats, size_t n_stats,
                               struct arena *arena, struct pick_stats_sum **out, size_t *n,
                               struct error *err) SLUICE_MUST_USE;

#endif
