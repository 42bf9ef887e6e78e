/* Rows are published by their number and stay until the end, so that readers take no lock. */
#include "pick/pool/profile/plugin_times.h"

#include <stdlib.h>
#include <string.h>

#include "pick/pool/profile/profile.h"

/* Upstream's. */
static const uint64_t BOUNDS[] = {100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const struct metric_scale PLUGIN_TIMES = {METRIC_UNIT_SECONDS, sizeof(BOUNDS) / sizeof(BOUNDS[0]),
                                          BOUNDS};
_Static_assert(PLUGIN_TIMES_CELLS == sizeof(BOUNDS) / sizeof(BOUNDS[0]) + 2, "");

const char *plugin_point_name(enum plugin_point point) {
    static const char *const names[] = {[POINT_FILTER] = "Filter",
                                        [POINT_SCORER] = "Scorer",
                                        [POINT_PICKER] = "Picker",
                                        [POINT_PRODUCER] = "DataProducer"};
    return names[point];
}

void plugin_times_init(struct plugin_times *times) {
    lock_init(&times->lock);
}

void plugin_times_fini(struct plugin_times *times) {
    for (size_t i = 0; i < times->n; i++) {
        free(times->rows[i]);
    }
    lock_fini(&times->lock);
}

bool plugin_times_same(const struct plugin_times_row *one, const struct plugin_times_row *other) {
    return one->point == other->point && strcmp(one->type, other->type) == 0 &&
           str_eq(one->name, other->name);
}

/* Returns: NULL when there are too many, or memory is out. */
static struct plugin_times_row *get_row(struct plugin_times *times, enum plugin_point point,
                                        const char *type, struct str name) {
    const struct plugin_times_row wanted = {.point = point, .type = type, .name = name};
    size_t n = atomic_load_explicit(&times->n, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) {
        if (plugin_times_same(times->rows[i], &wanted)) {
            return times->rows[i];
        }
    }
    struct plugin_times_row *row =
        n < PLUGIN_TIMES_MAX_ROWS ? calloc(1, sizeof(*row) + name.len) : NULL;
    if (row) {
        char *copy = (char *)(row + 1);
        if (name.len > 0) {
            memcpy(copy, name.ptr, name.len);
        }
        row->point = point;
        row->type = type;
        row->name = str_make(copy, name.len);
        times->rows[n] = row;
        atomic_store_explicit(&times->n, n + 1, memory_order_release);
    }
    return row;
}

static void add_time(struct plugin_times *times, enum plugin_point point, const char *type,
                     struct str name, uint64_t ns) {
    struct plugin_times_row *row = get_row(times, point, type, name);
    if (row) {
        metric_scale_add(&PLUGIN_TIMES, row->cells, ns);
    }
}

static void add_steps(struct plugin_times *times, const struct profile_step *steps, size_t n,
                      enum plugin_point point, const struct plugin_clock *clock, size_t first) {
    for (size_t i = 0; i < n && first + i < PLUGIN_CLOCK_STEPS; i++) {
        if (clock->steps >> (first + i) & 1) {
            add_time(times, point, steps[i].plugin->type, steps[i].name, clock->step_ns[first + i]);
        }
    }
}

void plugin_times_add(struct plugin_times *times, const struct profile *profile,
                      const struct plugin_clock *clock) {
    size_t n_before = profile->n_filters;
    lock_acquire(&times->lock);
    for (uint32_t i = 0; i < profile->needs.n_prefixes; i++) {
        const struct prefix_producer *producer = &profile->needs.prefixes[i];
        if (clock->producers >> i & 1) {
            add_time(times, POINT_PRODUCER, prefix_kind_type(producer->kind), producer->name,
                     clock->producer_ns[i]);
        }
    }
    add_steps(times, profile->filters, profile->n_filters, POINT_FILTER, clock, 0);
    add_steps(times, profile->scorers, profile->n_scorers, POINT_SCORER, clock, n_before);
    add_steps(times, &profile->picker, 1, POINT_PICKER, clock, n_before + profile->n_scorers);
    lock_release(&times->lock);
}
