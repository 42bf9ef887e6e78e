/* A hash table with open addressing that only grows: a row is published by one store, after its
 * content. */
#include "pick/session/stats.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

const char *const PICK_TIME_NAMES[N_PICK_TIMES] = {"headers", "body", "wait"};

/* ---- writing --------------------------------------------------------------------------------- */

static struct str copy_text(char **at, struct str text) {
    struct str copy = str_make(*at, text.len);
    if (text.len > 0) {
        memcpy(*at, text.ptr, text.len);
    }
    *at += text.len;
    return copy;
}

static struct pick_stats_row *row_new(struct str pool, struct str model, struct str target) {
    struct pick_stats_row *row = calloc(1, sizeof(*row) + pool.len + model.len + target.len + 1);
    if (row) {
        char *at = (char *)(row + 1);
        row->pool = copy_text(&at, pool);
        row->model = copy_text(&at, model);
        row->target = copy_text(&at, target);
    }
    return row;
}

static bool row_matches(const struct pick_stats_row *row, struct str pool, struct str model,
                        struct str target) {
    return str_eq(row->model, model) && str_eq(row->target, target) && str_eq(row->pool, pool);
}

struct pick_stats_row *pick_stats_get_row(struct pick_stats *stats, struct str pool,
                                          struct str model, struct str target) {
    struct pick_stats_row *row = stats->last;
    uint64_t at;
    if (row && row_matches(row, pool, model, target)) {
        return row;
    }
    for (at = hash_text(target, hash_text(model, hash_text(pool, 0)));; at++) {
        at &= PICK_ROW_SLOTS - 1;
        row = atomic_load_explicit(&stats->slots[at], memory_order_relaxed);
        if (!row) {
            break;
        }
        if (row_matches(row, pool, model, target)) {
            stats->last = row;
            return row;
        }
    }
    bool is_last = pool.len == 0 && str_eq(model, PICK_MODEL_OTHER) && str_eq(target, model);
    if (stats->n_rows >= PICK_MAX_ROWS && !is_last) {
        return pick_stats_get_row(stats, STR(""), PICK_MODEL_OTHER, PICK_MODEL_OTHER);
    }
    row = row_new(pool, model, target);
    if (row) {
        atomic_store_explicit(&stats->slots[at], row, memory_order_release);
        stats->n_rows++;
    }
    return row;
}

void pick_stats_fini(struct pick_stats *stats) {
    for (size_t i = 0; i < PICK_ROW_SLOTS; i++) {
        free(atomic_load_explicit(&stats->slots[i], memory_order_relaxed));
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct pick_stats_row *row_at(const struct pick_stats *stats, size_t at) {
    return atomic_load_explicit(&stats->slots[at], memory_order_acquire);
}

/* n_ended is read first: a request that is picked for meanwhile cannot make the difference
 * negative. */
static void read_row(const struct pick_stats_row *row, struct pick_stats_sum *out) {
    uint64_t n_ended = metric_cell_read(&row->n_ended);
    out->pool = row->pool;
    out->model = row->model;
    out->target = row->target;
    out->n_picked = metric_cell_read(&row->n_picked);
    out->n_running = out->n_picked > n_ended ? out->n_picked - n_ended : 0;
    for (size_t i = 0; i < ST_COUNT_; i++) {
        out->n_refused[i] = metric_cell_read(&row->n_refused[i]);
    }
    metric_histogram_read(&row->times, &out->times);
}

static void add_row(struct pick_stats_sum *sum, const struct pick_stats_sum *part) {
    sum->n_picked += part->n_picked;
    sum->n_running += part->n_running;
    for (size_t i = 0; i < ST_COUNT_; i++) {
        sum->n_refused[i] += part->n_refused[i];
    }
    metric_distribution_add(&sum->times, &part->times);
}

static int compare_texts(struct str a, struct str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n > 0 ? memcmp(a.ptr, b.ptr, n) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_rows(const void *a, const void *b) {
    const struct pick_stats_sum *one = a, *other = b;
    int order = compare_texts(one->pool, other->pool);
    order = order != 0 ? order : compare_texts(one->model, other->model);
    return order != 0 ? order : compare_texts(one->target, other->target);
}

/* Combines adjacent equal rows. */
static size_t merge_equal_rows(struct pick_stats_sum *sums, size_t n) {
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_left > 0 && compare_rows(&sums[n_left - 1], &sums[i]) == 0) {
            add_row(&sums[n_left - 1], &sums[i]);
        } else {
            sums[n_left++] = sums[i];
        }
    }
    return n_left;
}

static size_t count_rows(const struct pick_stats *stats) {
    size_t n = 0;
    for (size_t i = 0; i < PICK_ROW_SLOTS; i++) {
        n += row_at(stats, i) != NULL;
    }
    return n;
}

enum status pick_stats_sum_all(const struct pick_stats *const *all_stats, size_t n_stats,
                               struct arena *arena, struct pick_stats_sum **out, size_t *n,
                               struct error *err) {
    size_t cap = 0, n_read = 0;
    for (size_t i = 0; i < n_stats; i++) {
        cap += count_rows(all_stats[i]);
    }
    struct pick_stats_sum *sums = arena_calloc(arena, cap + 1, sizeof(*sums));
    if (!sums) {
        return error_no_memory(err, "the statistics of %zu models", cap);
    }
    /* Rows added since they were counted are left for the next call. */
    for (size_t i = 0; i < n_stats; i++) {
        for (size_t at = 0; at < PICK_ROW_SLOTS && n_read < cap; at++) {
            const struct pick_stats_row *row = row_at(all_stats[i], at);
            if (row) {
                read_row(row, &sums[n_read++]);
            }
        }
    }
    qsort(sums, n_read, sizeof(*sums), compare_rows);
    *out = sums;
    *n = merge_equal_rows(sums, n_read);
    return ST_OK;
}
