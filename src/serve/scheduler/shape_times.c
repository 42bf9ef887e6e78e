/* A set-associative table of shapes. */
#include "serve/scheduler/shape_times.h"

enum status shape_times_init(struct shape_times *times, struct arena *arena, bool is_fixed,
                             bool is_batched, struct error *err) {
    enum { N = SHAPE_TIMES_SETS * SHAPE_TIMES_WAYS };
    times->is_fixed = is_fixed;
    times->is_batched = is_batched;
    exec_time_stats_init(&times->fixed);
    if (is_fixed) {
        return ST_OK;
    }
    hash_key_init(&times->key);
    times->places = arena_calloc(arena, N, sizeof(*times->places));
    if (!times->places) {
        return error_no_memory(err, "the execution times of a model");
    }
    for (size_t i = 0; i < N; i++) {
        exec_time_stats_init(&times->places[i].times); /* the rest is zero: free */
    }
    return ST_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

enum { MAX_NUMBERS = 128 /* of a request with more, no times are kept */ };

/* Adds which input it is, and its dimensions. Returns: false when there is no space, or a dimension
 * is 0. */
static bool add_input(const sluice_input *input, size_t first, int64_t *numbers, size_t *n) {
    if (input->rank + 2 > MAX_NUMBERS - *n) {
        return false;
    }
    numbers[(*n)++] = (int64_t)input->index;
    numbers[(*n)++] = (int64_t)input->rank;
    for (size_t i = first; i < input->rank; i++) {
        if (input->dims[i] == 0) {
            return false;
        }
        numbers[(*n)++] = input->dims[i];
    }
    return true;
}

uint64_t shape_times_shapes_of(const struct shape_times *times, const sluice_request *request) {
    int64_t numbers[MAX_NUMBERS];
    size_t n = 0;
    if (request->batch == 0) {
        return SHAPES_NEVER;
    }
    if (times->is_fixed) {
        return SHAPES_FIXED;
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (!add_input(&request->inputs[i], times->is_batched ? 1 : 0, numbers, &n)) {
            return SHAPES_NEVER;
        }
    }
    struct str text = str_make((const char *)numbers, n * sizeof(numbers[0]));
    uint64_t hash = keyed_hash_of(&times->key, text).low;
    return hash < SHAPES_HASHED ? SHAPES_HASHED : hash;
}

/* ---- places ---------------------------------------------------------------------------------- */

static struct shape_times_place *set_of(struct shape_times *times, uint64_t shapes) {
    return &times->places[shapes % SHAPE_TIMES_SETS * SHAPE_TIMES_WAYS];
}

struct exec_time_stats *shape_times_find(struct shape_times *times, uint64_t shapes) {
    if (shapes == SHAPES_FIXED) {
        return &times->fixed;
    }
    if (shapes == SHAPES_NEVER) {
        return NULL;
    }
    struct shape_times_place *set = set_of(times, shapes);
    for (size_t i = 0; i < SHAPE_TIMES_WAYS; i++) {
        if (atomic_load_explicit(&set[i].shapes, memory_order_relaxed) == shapes) {
            if (atomic_load_explicit(&set[i].n_missed, memory_order_relaxed) > 0) {
                atomic_store_explicit(&set[i].n_missed, 0, memory_order_relaxed);
            }
            return &set[i].times;
        }
    }
    return NULL;
}

/* Returns: a place that is free, or else has waited longest for its shapes; NULL: all are of fast
 * shapes, and have not waited long. */
static struct shape_times_place *choose_place(struct shape_times_place *set) {
    struct shape_times_place *chosen = NULL;
    unsigned most = 0;
    for (size_t i = 0; i < SHAPE_TIMES_WAYS; i++) {
        if (atomic_load_explicit(&set[i].shapes, memory_order_relaxed) == SHAPES_NEVER) {
            return &set[i];
        }
        unsigned n_missed =
            atomic_fetch_add_explicit(&set[i].n_missed, 1, memory_order_relaxed) + 1;
        bool is_kept = exec_time_stats_is_fast(&set[i].times) && n_missed <= SHAPE_TIMES_KEPT;
        if (!is_kept && n_missed > most) {
            most = n_missed;
            chosen = &set[i];
        }
    }
    return chosen;
}

struct exec_time_stats *shape_times_get(struct shape_times *times, uint64_t shapes) {
    struct exec_time_stats *found = shape_times_find(times, shapes);
    if (found || shapes < SHAPES_HASHED) {
        return found;
    }
    struct shape_times_place *place = choose_place(set_of(times, shapes));
    if (!place) {
        return NULL;
    }
    atomic_store_explicit(&place->shapes, SHAPES_NEVER, memory_order_relaxed);
    exec_time_stats_init(&place->times);
    atomic_store_explicit(&place->n_missed, 0, memory_order_relaxed);
    atomic_store_explicit(&place->shapes, shapes, memory_order_release);
    return &place->times;
}
