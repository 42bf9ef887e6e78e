/* A hash table with open addressing that only grows: a row is published by one store, after its
 * content; so is a histogram of a row. */
#include "pick/session/stats.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const PICK_TIME_NAMES[N_PICK_TIMES] = {"headers", "body", "wait"};

/* ---- histograms ------------------------------------------------------------------------------ */

#define HISTOGRAM(id, unit, ...) static const uint64_t id##_BOUNDS[] = {__VA_ARGS__};
#include "pick/session/row_histogram.def"
#undef HISTOGRAM

static const uint64_t QUEUE_BOUNDS[] = {100,     500,      1000,     5000,    10000,   25000,
                                        50000,   100000,   250000,   500000,  1000000, 2500000,
                                        5000000, 10000000, 30000000, 60000000};
static const uint64_t SHORT_BOUNDS[] = {100,  200,   500,   1000,  2000,
                                        5000, 10000, 20000, 50000, 100000};
static const uint64_t STREAM_BOUNDS[] = {1000,     5000,      10000,     50000,    100000,
                                         500000,   1000000,   5000000,   10000000, 30000000,
                                         60000000, 120000000, 300000000, 600000000};

#define SCALE(unit, bounds)                                                                        \
    { METRIC_UNIT_##unit, sizeof(bounds) / sizeof((bounds)[0]), bounds }
static const struct metric_scale QUEUE_TIMES = SCALE(SECONDS, QUEUE_BOUNDS);
const struct metric_scale PICK_SHORT_TIMES = SCALE(SECONDS, SHORT_BOUNDS);
const struct metric_scale PICK_STREAM_TIMES = SCALE(SECONDS, STREAM_BOUNDS);
_Static_assert(PICK_SHORT_TIME_CELLS == sizeof(SHORT_BOUNDS) / sizeof(SHORT_BOUNDS[0]) + 2, "");
_Static_assert(PICK_STREAM_TIME_CELLS == sizeof(STREAM_BOUNDS) / sizeof(STREAM_BOUNDS[0]) + 2, "");

const struct metric_scale *pick_histogram_scale(enum pick_histogram which) {
#define HISTOGRAM(id, unit, ...) SCALE(unit, id##_BOUNDS),
    static const struct metric_scale scales[] = {
#include "pick/session/row_histogram.def"
    };
#undef HISTOGRAM
    return which < PICK_HISTOGRAM_QUEUED ? &scales[which] : &QUEUE_TIMES;
}

/* ---- writing --------------------------------------------------------------------------------- */

static struct str copy_text(char **at, struct str text) {
    struct str copy = str_make(*at, text.len);
    if (text.len > 0) {
        memcpy(*at, text.ptr, text.len);
    }
    *at += text.len;
    return copy;
}

static struct pick_stats_row *row_new(const struct pick_stats *stats,
                                      const struct pick_stats_key *key) {
    size_t n_bytes = key->pool.len + key->model.len + key->target.len + key->fairness_id.len;
    struct pick_stats_row *row = calloc(1, sizeof(*row) + n_bytes + 1);
    if (row) {
        char *at = (char *)(row + 1);
        row->key.pool = copy_text(&at, key->pool);
        row->key.model = copy_text(&at, key->model);
        row->key.target = copy_text(&at, key->target);
        row->key.fairness_id = copy_text(&at, key->fairness_id);
        row->key.priority = key->priority;
        row->target_hash = keyed_hash_of(stats->key, key->target).low | 1; /* 0 is none */
    }
    return row;
}

static bool row_matches(const struct pick_stats_row *row, const struct pick_stats_key *key) {
    return row->key.priority == key->priority && str_eq(row->key.model, key->model) &&
           str_eq(row->key.target, key->target) && str_eq(row->key.pool, key->pool) &&
           str_eq(row->key.fairness_id, key->fairness_id);
}

/* Clients choose model and fairness id. Of the two hashes different halves are added, so that equal
 * texts do not cancel out. */
static uint64_t hash_row(const struct pick_stats *stats, const struct pick_stats_key *key) {
    uint64_t hash = keyed_hash_of(stats->key, key->model).low +
                    keyed_hash_of(stats->key, key->fairness_id).high + (uint64_t)key->priority;
    return hash_text(key->target, hash_text(key->pool, hash));
}

static bool is_new_label(struct str fairness_id) {
    return !str_eq(fairness_id, PICK_LABEL_OTHER) && !str_eq(fairness_id, PICK_FAIRNESS_NONE);
}

/* The row for what has none of its own. */
static struct pick_stats_key key_of_others(const struct pick_stats *stats,
                                           const struct pick_stats_key *key) {
    struct pick_stats_key others = *key;
    others.fairness_id = PICK_LABEL_OTHER;
    if (stats->n_rows >= PICK_MAX_ROWS) {
        others = (struct pick_stats_key){STR(""), PICK_LABEL_OTHER, PICK_LABEL_OTHER,
                                         PICK_LABEL_OTHER, 0};
    }
    return others;
}

struct pick_stats_row *pick_stats_get_row(struct pick_stats *stats,
                                          const struct pick_stats_key *key) {
    struct pick_stats_row *row = stats->last;
    uint64_t at;
    if (row && row_matches(row, key)) {
        return row;
    }
    for (at = hash_row(stats, key);; at++) {
        at &= PICK_ROW_SLOTS - 1;
        row = atomic_load_explicit(&stats->slots[at], memory_order_relaxed);
        if (!row) {
            break;
        }
        if (row_matches(row, key)) {
            stats->last = row;
            return row;
        }
    }
    if (stats->n_rows >= PICK_MAX_ROWS ||
        (stats->n_rows >= PICK_MAX_FAIR_ROWS && is_new_label(key->fairness_id))) {
        struct pick_stats_key others = key_of_others(stats, key);
        struct pick_stats_row wanted = {.key = *key};
        if (!row_matches(&wanted, &others)) {
            return pick_stats_get_row(stats, &others);
        }
    }
    row = row_new(stats, key);
    if (row) {
        atomic_store_explicit(&stats->slots[at], row, memory_order_release);
        stats->n_rows++;
    }
    return row;
}

void pick_stats_row_add(struct pick_stats_row *row, enum pick_histogram which, uint64_t value) {
    const struct metric_scale *scale = pick_histogram_scale(which);
    metric_cell *cells = atomic_load_explicit(&row->histograms[which], memory_order_relaxed);
    if (!cells) {
        cells = calloc(metric_scale_cells(scale), sizeof(*cells));
        atomic_store_explicit(&row->histograms[which], cells, memory_order_release);
    }
    if (cells) {
        metric_scale_add(scale, cells, value);
    }
}

void pick_stats_fini(struct pick_stats *stats) {
    for (size_t i = 0; i < PICK_ROW_SLOTS; i++) {
        struct pick_stats_row *row = atomic_load_explicit(&stats->slots[i], memory_order_relaxed);
        for (size_t k = 0; row && k < N_PICK_HISTOGRAMS; k++) {
            free((void *)atomic_load_explicit(&row->histograms[k], memory_order_relaxed));
        }
        free(row);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct pick_stats_row *row_at(const struct pick_stats *stats, size_t at) {
    return atomic_load_explicit(&stats->slots[at], memory_order_acquire);
}

/* Ends are read first: a request that begins meanwhile cannot make the difference negative. */
static uint64_t read_difference(const metric_cell *begun, const metric_cell *ended) {
    uint64_t n_ended = metric_cell_read(ended), n_begun = metric_cell_read(begun);
    return n_begun > n_ended ? n_begun - n_ended : 0;
}

static enum status add_histograms(const struct pick_stats_row *row, struct arena *arena,
                                  struct pick_stats_sum *sum, struct error *err) {
    for (size_t i = 0; i < N_PICK_HISTOGRAMS; i++) {
        const metric_cell *cells = atomic_load_explicit(&row->histograms[i], memory_order_acquire);
        const struct metric_scale *scale = pick_histogram_scale((enum pick_histogram)i);
        if (cells && !sum->histograms[i]) {
            sum->histograms[i] = arena_calloc(arena, metric_scale_cells(scale), sizeof(uint64_t));
            if (!sum->histograms[i]) {
                return error_no_memory(err, "the statistics of a model");
            }
        }
        if (cells) {
            metric_scale_read(scale, cells, sum->histograms[i]);
        }
    }
    return ST_OK;
}

static enum status add_row(const struct pick_stats_row *row, struct arena *arena,
                           struct pick_stats_sum *sum, struct error *err) {
    sum->n_running += read_difference(&row->n_picked, &row->n_ended);
    sum->n_picked += metric_cell_read(&row->n_picked);
    sum->n_queued += read_difference(&row->n_queued, &row->n_dequeued);
    sum->n_bytes_queued += read_difference(&row->n_bytes_queued, &row->n_bytes_dequeued);
    sum->was_queued = sum->was_queued || metric_cell_read(&row->n_queued) > 0;
    for (size_t i = 0; i < ST_COUNT_; i++) {
        sum->n_refused[i] += metric_cell_read(&row->n_refused[i]);
    }
    sum->n_server_errors += metric_cell_read(&row->n_server_errors);
    for (size_t i = 0; i < N_PICK_DECISIONS; i++) {
        sum->n_decisions[i] += metric_cell_read(&row->n_decisions[i]);
    }
    return add_histograms(row, arena, sum, err);
}

void pick_stats_sum_add(struct pick_stats_sum *sum, const struct pick_stats_sum *part) {
    sum->n_picked += part->n_picked;
    sum->n_running += part->n_running;
    sum->n_queued += part->n_queued;
    sum->n_bytes_queued += part->n_bytes_queued;
    sum->was_queued = sum->was_queued || part->was_queued;
    for (size_t i = 0; i < ST_COUNT_; i++) {
        sum->n_refused[i] += part->n_refused[i];
    }
    sum->n_server_errors += part->n_server_errors;
    for (size_t i = 0; i < N_PICK_DECISIONS; i++) {
        sum->n_decisions[i] += part->n_decisions[i];
    }
    for (size_t i = 0; i < N_PICK_HISTOGRAMS; i++) {
        unsigned n = metric_scale_cells(pick_histogram_scale((enum pick_histogram)i));
        if (!sum->histograms[i]) {
            sum->histograms[i] = part->histograms[i];
            continue;
        }
        for (unsigned k = 0; part->histograms[i] && k < n; k++) {
            sum->histograms[i][k] += part->histograms[i][k];
        }
    }
}

int pick_stats_compare(const struct pick_stats_key *one, const struct pick_stats_key *other,
                       size_t n_labels) {
    const struct str labels[] = {one->pool, one->model, one->target, one->fairness_id};
    const struct str others[] = {other->pool, other->model, other->target, other->fairness_id};
    int order = 0;
    for (size_t i = 0; order == 0 && i < n_labels; i++) {
        order = str_compare(labels[i], others[i]);
    }
    return order;
}

static int compare_rows(const void *a, const void *b) {
    const struct pick_stats_row *const *one = a, *const *other = b;
    int64_t priority = (*one)->key.priority, other_priority = (*other)->key.priority;
    int order = pick_stats_compare(&(*one)->key, &(*other)->key, 4);
    return order != 0 ? order : (priority > other_priority) - (priority < other_priority);
}

static size_t count_rows(const struct pick_stats *stats) {
    size_t n = 0;
    for (size_t i = 0; i < PICK_ROW_SLOTS; i++) {
        n += row_at(stats, i) != NULL;
    }
    return n;
}

/* Rows added since they were counted are left for the next call. Returns: their number. */
static size_t list_rows(const struct pick_stats *const *all_stats, size_t n_stats,
                        const struct pick_stats_row **rows, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < n_stats; i++) {
        for (size_t at = 0; at < PICK_ROW_SLOTS && n < cap; at++) {
            const struct pick_stats_row *row = row_at(all_stats[i], at);
            if (row) {
                rows[n++] = row;
            }
        }
    }
    return n;
}

enum status pick_stats_sum_all(const struct pick_stats *const *all_stats, size_t n_stats,
                               struct arena *arena, struct pick_stats_sum **out, size_t *n,
                               struct error *err) {
    size_t cap = 0, n_sums = 0;
    enum status st = ST_OK;
    for (size_t i = 0; i < n_stats; i++) {
        cap += count_rows(all_stats[i]);
    }
    const struct pick_stats_row **rows =
        arena_calloc(arena, cap + 1, sizeof(const struct pick_stats_row *));
    struct pick_stats_sum *sums = arena_calloc(arena, cap + 1, sizeof(*sums));
    if (!sums || !rows) {
        return error_no_memory(err, "the statistics of %zu models", cap);
    }
    size_t n_rows = list_rows(all_stats, n_stats, rows, cap);
    qsort(rows, n_rows, sizeof(*rows), compare_rows);
    for (size_t i = 0; i < n_rows && st == ST_OK; i++) {
        if (i == 0 || compare_rows(&rows[i - 1], &rows[i]) != 0) {
            sums[n_sums].target_hash = rows[i]->target_hash;
            sums[n_sums++].key = rows[i]->key;
        }
        st = add_row(rows[i], arena, &sums[n_sums - 1], err);
    }
    *out = sums;
    *n = n_sums;
    return st;
}
