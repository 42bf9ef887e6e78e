/* Keeping a view up to date. */
#include "pick/pool/view.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_COLUMNS = sizeof(struct choice_columns) / sizeof(void *),
    N_ARRAYS = 2 * N_COLUMNS + 3,
    ALIGNMENT = 64
};

/* ---- memory ---------------------------------------------------------------------------------- */

static enum status make_room(struct pool_view *view, uint32_t n, struct error *err) {
    if (n <= view->cap) {
        return ST_OK;
    }
    size_t cap = ((size_t)n + 15) & ~(size_t)15; /* so that each array is aligned */
    uint32_t *memory = aligned_alloc(ALIGNMENT, N_ARRAYS * cap * sizeof(*memory));
    if (!memory) {
        return error_set(err, ST_NO_MEMORY, "no memory to choose from %u endpoints", n);
    }
    uint32_t *next = memory;
    struct choice_columns *each[] = {&view->columns, &view->room};
    for (size_t i = 0; i < 2; i++) {
#define COLUMN(type, name)                                                                         \
    each[i]->name = (type *)next;                                                                  \
    next += cap;
#include "pick/pool/profile/choice_columns.def"
#undef COLUMN
    }
    view->place_of = next;
    view->score = (float *)next + cap;
    view->scratch = (float *)next + 2 * cap;
    memset(memory, 0, N_ARRAYS * cap * sizeof(*memory)); /* what was there is looked at */
    free(view->memory);
    view->memory = memory;
    view->cap = (uint32_t)cap;
    return ST_OK;
}

void pool_view_fini(struct pool_view *view) {
    free(view->memory);
    standing_sums_fini(&view->standing);
    *view = (struct pool_view){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The one who is there goes where `member` was. What is known of `member` does not come along: it
 * is looked at next. */
static void move(struct pool_view *view, uint32_t member, uint32_t to) {
    const struct choice_columns *columns = &view->columns;
    uint32_t from = view->place_of[member];
    choice_columns_copy(columns, from, columns, to);
    standing_sums_note(&view->standing, from, false);
    view->place_of[columns->member[from]] = from;
    columns->member[to] = member;
    view->place_of[member] = to;
}

/* In the order of their places. */
enum standing { STANDING_READY, STANDING_AVOIDED, STANDING_OUT };

static void place(struct pool_view *view, uint32_t member, enum standing wanted) {
    uint32_t *ends[] = {&view->n_ready, &view->n_eligible}, at = view->place_of[member];
    unsigned now = at < view->n_ready      ? STANDING_READY
                   : at < view->n_eligible ? STANDING_AVOIDED
                                           : STANDING_OUT;
    for (; now < wanted; now++) {
        *ends[now] -= 1;
        move(view, member, *ends[now]);
    }
    for (; now > wanted; now--) {
        move(view, member, *ends[now - 1]);
        *ends[now - 1] += 1;
    }
}

static enum standing standing_of(uint32_t rank) {
    return rank == ENDPOINT_OUT       ? STANDING_OUT
           : rank >= ENDPOINT_REFUSED ? STANDING_AVOIDED
                                      : STANDING_READY;
}

/* ---- what is known --------------------------------------------------------------------------- */

/* Each returns whether it was the same before. */

static bool keep(uint32_t *slot, uint32_t value) {
    bool same = *slot == value;
    *slot = value;
    return same;
}

static bool keep_float(float *slot, float value) {
    bool same = *slot <= value && *slot >= value;
    *slot = value;
    return same;
}

/* How long answers take. */
static bool look_at_answers(const struct choice_columns *columns, uint32_t at,
                            const struct endpoint *endpoint) {
    uint64_t ns = endpoint_answered_ns(endpoint);
    bool same = keep_float(&columns->first_byte_s[at], endpoint_first_byte_s(endpoint));
    same = keep_float(&columns->answer_s[at], endpoint_answer_s(endpoint)) && same;
    return keep(&columns->answered[at], ns != 0 ? choice_clock(ns) : 0) && same;
}

/* What the endpoint has said that is no count of requests. */
static bool look_at_rest(const struct choice_columns *columns, uint32_t at,
                         const struct load_now *load) {
    float used = load->known & LOAD_KV_CACHE ? load->kv_cache_used : 0;
    bool same = keep(&columns->known[at], load->known);
    same = keep(&columns->adapters[at], load->adapters) && same;
    return keep_float(&columns->kv_cache_used[at], used) && same;
}

static void look(struct pool_view *view, const struct pool_snapshot *snapshot, uint32_t member,
                 uint64_t now_ns) {
    const struct endpoint *endpoint = snapshot->members[member].endpoint;
    const struct load_cell *cell = &snapshot->loads[member];
    const struct choice_columns *columns = &view->columns;
    uint32_t in_flight = endpoint_in_flight(endpoint);
    struct load_now load = load_look(cell, now_ns, in_flight);
    uint64_t until_ns = atomic_load_explicit(&cell->until_ns, memory_order_relaxed);
    if (until_ns > now_ns && until_ns < view->until_ns) {
        view->until_ns = until_ns;
    }
    place(view, member, standing_of(endpoint_rank(endpoint)));
    uint32_t at = view->place_of[member];
    columns->address[at] = snapshot->members[member].hash;
    columns->in_flight[at] = (float)in_flight;
    columns->n_waiting[at] = (float)(load.known & LOAD_WAITING ? load.n_waiting : in_flight);
    columns->n_running[at] = (float)(load.known & LOAD_RUNNING ? load.n_running : in_flight);
    columns->n_tokens[at] = (float)endpoint_n_tokens(endpoint);
    columns->cold_turn[at] = endpoint_cold_turn(endpoint);
    view->adapters |= load.adapters;
    bool steady = look_at_rest(columns, at, &load);
    steady = look_at_answers(columns, at, endpoint) && steady;
    standing_sums_note(&view->standing, at, steady);
}

static void look_at_all(struct pool_view *view, const struct pool_snapshot *snapshot,
                        uint64_t now_ns) {
    view->until_ns = UINT64_MAX;
    view->read_ns = now_ns;
    view->adapters = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        look(view, snapshot, i, now_ns);
    }
}

/* A view of another snapshot: nobody may be picked so far. */
static enum status begin(struct pool_view *view, const struct pool_snapshot *snapshot,
                         struct error *err) {
    enum status st = make_room(view, snapshot->n_members, err);
    if (st != ST_OK) {
        return st;
    }
    view->generation = snapshot->generation;
    view->n_ready = view->n_eligible = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        view->columns.member[i] = view->place_of[i] = i;
    }
    return ST_OK;
}

/* Returns: false when the list does not have all of them any more. */
static bool follow(struct pool_view *view, const struct pool_snapshot *snapshot, uint64_t n_changes,
                   uint64_t now_ns) {
    for (uint64_t i = view->n_changes; i < n_changes; i++) {
        uint32_t member;
        if (!pool_changes_read(&snapshot->changes, i, &member)) {
            return false;
        }
        look(view, snapshot, member, now_ns);
    }
    return true;
}

enum status pool_view_follow(struct pool_view *view, const struct pool_snapshot *snapshot,
                             uint64_t now_ns, struct error *err) {
    bool whole = view->until_ns <= now_ns || now_ns < view->read_ns;
    if (view->generation != snapshot->generation) {
        enum status st = begin(view, snapshot, err);
        if (st != ST_OK) {
            return st;
        }
        whole = true;
    }
    uint64_t n_changes = pool_changes_count(&snapshot->changes);
    if (whole || !follow(view, snapshot, n_changes, now_ns)) {
        look_at_all(view, snapshot, now_ns);
    }
    view->n_changes = n_changes;
    return ST_OK;
}
