/* Pick statistics of a worker: the time that picks took, and the outcome of requests by pool,
 * model, target, fairness id and priority. One thread writes, with plain stores; any thread reads,
 * without a lock, and sums over the workers.
 *
 * A row is for values that may be labels (label_names.h): the caller replaces all others by
 * PICK_LABEL_OTHER. The number of rows is bounded as well; near the bound fairness ids are no
 * longer told apart, so that models still are. A row stays when its model leaves the configuration.
 * A histogram of a row takes memory from its first value on.
 *
 * Thread: pick_stats_get_row and changing its cells: the worker's; reading: any. */
#ifndef SLUICE_PICK_SESSION_STATS_H
#define SLUICE_PICK_SESSION_STATS_H

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/base/metric/histogram.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "pick/pool/flow/flow.h"
#include "pick/pool/profile/handler.h"

/* The parts of a pick's time. */
enum pick_phase_time {
    PICK_TIME_HEADERS, /* from receiving the request's headers to sending the pick */
    PICK_TIME_BODY,    /* the same, from the body message that named the model */
    PICK_TIME_WAIT,    /* from the headers to that body message */
    N_PICK_TIMES,
};
extern const char *const PICK_TIME_NAMES[N_PICK_TIMES];

/* The histograms of a row (row_histogram.def), and one for each end of a wait in the queue. */
#define HISTOGRAM(id, unit, ...) PICK_HISTOGRAM_##id,
enum pick_histogram {
#include "pick/session/row_histogram.def"
    PICK_HISTOGRAM_QUEUED, /* + enum flow_outcome */
    PICK_HISTOGRAM_QUEUE_FULL = PICK_HISTOGRAM_QUEUED + N_FLOW_OUTCOMES,
    N_PICK_HISTOGRAMS
};
#undef HISTOGRAM
const struct metric_scale *pick_histogram_scale(enum pick_histogram which);
/* Of times of picks and of turns, which have no row. */
extern const struct metric_scale PICK_SHORT_TIMES, PICK_STREAM_TIMES;
enum { PICK_SHORT_TIME_CELLS = 12, PICK_STREAM_TIME_CELLS = 16 };

/* What a row is for: the request as it names its model, and the target of the configuration. */
struct pick_stats_key {
    struct str pool, model, target, fairness_id;
    int64_t priority;
};

struct pick_stats_row {
    struct pick_stats_key key;
    uint64_t target_hash; /* of struct endpoint_targets; keyed, as clients choose names of models */
    bool is_proven;       /* the worker's own: the model was reported as real (label_names.h) */
    metric_cell n_picked, n_ended;
    metric_cell n_decisions[N_PICK_DECISIONS];
    metric_cell n_queued, n_dequeued; /* requests that began and that ended to wait */
    metric_cell n_bytes_queued, n_bytes_dequeued;
    metric_cell n_refused[ST_COUNT_];
    metric_cell n_server_errors; /* responses with another status than success */
    metric_cell *_Atomic histograms[N_PICK_HISTOGRAMS]; /* NULL: empty */
};

/* The rows of a worker. From PICK_MAX_FAIR_ROWS on new ones have no fairness id, further ones
 * nothing but PICK_LABEL_OTHER. */
enum {
    PICK_MAX_ROWS = 2048,
    PICK_MAX_FAIR_ROWS = PICK_MAX_ROWS / 2,
    PICK_ROW_SLOTS = 2 * PICK_MAX_ROWS
};

enum { PICK_GRPC_CODES = 17 };

/* Zeroed memory with a key is empty. */
struct pick_stats {
    const struct hash_key *key; /* of the hashes of names, the same for all workers */
    struct metric_histogram times[N_PICK_TIMES];
    metric_cell scheduler_times[PICK_SHORT_TIME_CELLS];
    metric_cell dispatch_times[PICK_SHORT_TIME_CELLS]; /* of turns in which waiters are notified or
                                                          pick again */
    metric_cell stream_times[PICK_STREAM_TIME_CELLS];
    metric_cell n_streams[PICK_GRPC_CODES]; /* that ended, by their gRPC status */
    struct pick_stats_row *_Atomic slots[PICK_ROW_SLOTS];
    size_t n_rows;
    struct pick_stats_row *last; /* of the last look-up: the next is often the same */
};

void pick_stats_fini(struct pick_stats *stats);

#define PICK_LABEL_OTHER STR("other")          /* a value that is not a label, as upstream has it */
#define PICK_MODEL_NONE STR("(none)")          /* no model is named, or it is not read */
#define PICK_FAIRNESS_NONE STR("default-flow") /* the request has no fairness id */

/* Finds or adds the row. Returns: NULL when out of memory. */
struct pick_stats_row *pick_stats_get_row(struct pick_stats *stats,
                                          const struct pick_stats_key *key);
/* Adds a value to a histogram of the row. Out of memory it is not counted. */
void pick_stats_row_add(struct pick_stats_row *row, enum pick_histogram which, uint64_t value);

/* ---- reading --------------------------------------------------------------------------------- */

/* A row summed over workers. */
struct pick_stats_sum {
    struct pick_stats_key key; /* views of a worker's row */
    uint64_t target_hash;
    uint64_t n_picked, n_running;
    uint64_t n_decisions[N_PICK_DECISIONS];
    uint64_t n_queued, n_bytes_queued; /* now */
    bool was_queued;
    uint64_t n_refused[ST_COUNT_];
    uint64_t n_server_errors;
    uint64_t *histograms[N_PICK_HISTOGRAMS]; /* the cells; NULL: empty */
};

/* Sorted by pool, model, target, fairness id and priority, each once. Returns: ST_NO_MEMORY. Owns:
 * the array is in `arena`. */
enum status pick_stats_sum_all(const struct pick_stats *const *all_stats, size_t n_stats,
                               struct arena *arena, struct pick_stats_sum **out, size_t *n,
                               struct error *err) SLUICE_MUST_USE;
/* Orders rows as pick_stats_sum_all, by the first `n_labels` of pool, model, target and fairness
 * id. */
int pick_stats_compare(const struct pick_stats_key *one, const struct pick_stats_key *other,
                       size_t n_labels);
/* Adds the counts and histograms of a row to another one's. */
void pick_stats_sum_add(struct pick_stats_sum *sum, const struct pick_stats_sum *part);

#endif
