/* What a worker writes down of the requests that it was asked about: how long picks took, and what
 * became of requests for each model. One thread writes, with plain stores; any reads, at any time,
 * without a lock, and adds up the ledgers of all workers.
 *
 * Rows are those of models that the pool's configuration names, and two more for all others: what a
 * client makes up costs no memory. A row stays, also when its model has left the configuration.
 *
 * Thread: pick_stats_get_row and who adds to its cells: the worker's; reading: any. */
#ifndef SLUICE_PICK_SESSION_STATS_H
#define SLUICE_PICK_SESSION_STATS_H

#include "core/base/arena.h"
#include "core/base/metric/histogram.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Of the time that a pick takes. */
enum pick_phase_time {
    PICK_TIME_HEADERS, /* from the request's headers to the answer that has the endpoint */
    PICK_TIME_BODY,    /* the same, from the part of the body that named the model */
    PICK_TIME_WAIT,    /* from the headers to that part */
    N_PICK_TIMES,
};
extern const char *const PICK_TIME_NAMES[N_PICK_TIMES];

/* A model as requests to a pool name it, and the name that the configuration sends it on as. */
struct pick_stats_row {
    struct str pool, model, target;
    metric_cell n_picked, n_ended;
    metric_cell n_refused[ST_COUNT_];
    struct metric_histogram times; /* of requests, to the end of their answers */
};

/* Ledgers hold so many rows at most; what is beyond them counts for PICK_MODEL_OTHER. */
enum { PICK_MAX_ROWS = 4096, PICK_ROW_SLOTS = 2 * PICK_MAX_ROWS };

/* Zeroed memory is an empty one. */
struct pick_stats {
    struct metric_histogram times[N_PICK_TIMES];
    struct pick_stats_row *_Atomic slots[PICK_ROW_SLOTS];
    size_t n_rows;
    struct pick_stats_row *last; /* that was asked for: the next is often the same */
};

void pick_stats_fini(struct pick_stats *stats);

#define PICK_MODEL_OTHER STR("(other)") /* a name that the configuration does not have */
#define PICK_MODEL_NONE STR("(none)")   /* none is named, or it makes no difference */

/* The row of these names. Returns: NULL when out of memory; then nothing is counted. */
struct pick_stats_row *pick_stats_get_row(struct pick_stats *stats, struct str pool,
                                          struct str model, struct str target);

/* ---- reading --------------------------------------------------------------------------------- */

/* A row of several ledgers, added up. */
struct pick_stats_sum {
    struct str pool, model, target; /* of a ledger */
    uint64_t n_picked, n_running;
    uint64_t n_refused[ST_COUNT_];
    struct metric_distribution times;
};

/* Sorted by pool, model and target, each of them once. Returns: ST_NO_MEMORY. Owns: the array is of
 * `arena`. */
enum status pick_stats_sum_all(const struct pick_stats *const *all_stats, size_t n_stats,
                               struct arena *arena, struct pick_stats_sum **out, size_t *n,
                               struct error *err) __attribute__((warn_unused_result));

#endif
