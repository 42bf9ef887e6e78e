/* Updates a view from the snapshot's list of changes. */
#include "pick/pool/view.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_COLUMNS = sizeof(struct candidate_columns) / sizeof(void *),
    N_ARRAYS = 2 * N_COLUMNS + 5,
    ALIGNMENT = 64
};

/* ---- memory ---------------------------------------------------------------------------------- */

static enum status grow_columns(struct pool_view *view, uint32_t n, struct error *err) {
    if (n <= view->cap) {
        return ST_OK;
    }
    size_t cap = ((size_t)n + 15) & ~(size_t)15; /* aligns each array */
    uint32_t *memory = aligned_alloc(ALIGNMENT, N_ARRAYS * cap * sizeof(*memory));
    if (!memory) {
        return error_no_memory(err, "choosing from %u endpoints", n);
    }
    uint32_t *next = memory;
    struct candidate_columns *each[] = {&view->columns, &view->filtered_columns};
    for (size_t i = 0; i < 2; i++) {
#define COLUMN(type, name)                                                                         \
    each[i]->name = (type *)next;                                                                  \
    next += cap;
#include "pick/pool/profile/candidate_columns.def"
#undef COLUMN
    }
    view->index_of = next;
    view->score = (float *)next + cap;
    view->scratch = (float *)next + 2 * cap;
    view->order = next + 3 * cap;
    memset(memory, 0, N_ARRAYS * cap * sizeof(*memory)); /* unread members are copied, too */
    free(view->memory);
    view->memory = memory;
    view->cap = (uint32_t)cap;
    return ST_OK;
}

void pool_view_fini(struct pool_view *view) {
    free(view->memory);
    score_cache_fini(&view->score_cache);
    *view = (struct pool_view){0};
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Exchanges `member` with the one at position `to`. The columns of `member` are not copied: they
 * are read again next. */
static void swap_members(struct pool_view *view, uint32_t member, uint32_t to) {
    const struct candidate_columns *columns = &view->columns;
    uint32_t from = view->index_of[member];
    candidate_columns_copy(columns, from, columns, to);
    score_cache_invalidate(&view->score_cache, from);
    view->index_of[columns->member[from]] = from;
    columns->member[to] = member;
    view->index_of[member] = to;
}

/* In the order of positions. */
enum rank_tier { TIER_READY, TIER_LIMITED, TIER_AVOIDED, TIER_OUT };

static void move_to_tier(struct pool_view *view, uint32_t member, enum rank_tier wanted) {
    uint32_t *ends[] = {&view->n_ready, &view->n_unavoided, &view->n_eligible},
             at = view->index_of[member];
    unsigned now = at < view->n_ready       ? TIER_READY
                   : at < view->n_unavoided ? TIER_LIMITED
                   : at < view->n_eligible  ? TIER_AVOIDED
                                            : TIER_OUT;
    for (; now < wanted; now++) {
        *ends[now] -= 1;
        swap_members(view, member, *ends[now]);
    }
    for (; now > wanted; now--) {
        swap_members(view, member, *ends[now - 1]);
        *ends[now - 1] += 1;
    }
}

static enum rank_tier rank_tier_of(uint32_t rank) {
    return rank == ENDPOINT_OUT       ? TIER_OUT
           : rank >= ENDPOINT_REFUSED ? TIER_AVOIDED
           : rank >= ENDPOINT_LIMITED ? TIER_LIMITED
                                      : TIER_READY;
}

/* ---- reading members ------------------------------------------------------------------------- */

static void read_response_times(const struct candidate_columns *columns, uint32_t at,
                                const struct endpoint *endpoint) {
    uint64_t ns = endpoint_answered_ns(endpoint);
    columns->first_byte_s[at] = endpoint_first_byte_s(endpoint);
    columns->answer_s[at] = endpoint_answer_s(endpoint);
    columns->answered[at] = ns != 0 ? candidate_clock_ticks(ns) : 0;
}

/* The load report, except its request counts. */
static void read_load(const struct candidate_columns *columns, uint32_t at,
                      const struct load_estimate *load) {
    columns->known[at] = load->known;
    columns->adapters[at] = load->adapters;
    columns->kv_cache_used[at] = load->known & LOAD_KV_CACHE ? load->kv_cache_used : 0;
}

/* ---- requests that wait at endpoints without a report ---------------------------------------- */

/* An endpoint without a report is assumed to run as many of our requests as the others do on
 * average; the rest wait. Without any report all of its requests count as waiting, as those of all
 * others. */
static float guess_waiting(const struct pool_view *view, float in_flight) {
    return in_flight > view->usual_running ? in_flight - view->usual_running : 0;
}

/* The mean of our requests that run at the members with a report; a whole number, so that it
 * changes rarely. */
static float find_usual_running(const struct pool_view *view) {
    double sum = view->known_running;
    return sum > 0 ? (float)(uint32_t)(sum / view->n_known) : 0;
}

static double running_at(const struct pool_view *view, uint32_t at) {
    const struct candidate_columns *columns = &view->columns;
    bool known = columns->known[at] & LOAD_WAITING;
    return known ? (double)columns->in_flight[at] - (double)columns->n_waiting[at] : 0;
}

/* Only then the sum of our running requests is needed, and kept. */
static bool update_mixed(struct pool_view *view, uint32_t n_members) {
    bool is_mixed = view->n_known > 0 && view->n_known < n_members;
    if (is_mixed && !view->is_mixed) {
        view->known_running = 0;
        for (uint32_t at = 0; at < n_members; at++) {
            view->known_running += running_at(view, at);
        }
    }
    view->is_mixed = is_mixed;
    return is_mixed;
}

/* Where some members have a report and others have none: guesses again if what is usual has
 * changed. */
static void update_guesses(struct pool_view *view, const struct pool_snapshot *snapshot) {
    const struct candidate_columns *columns = &view->columns;
    uint32_t n = snapshot->n_members;
    if (view->n_known == n && !view->is_mixed) {
        return;
    }
    bool is_mixed = update_mixed(view, n);
    float running = is_mixed ? find_usual_running(view) : 0;
    if (running == view->usual_running) {
        return;
    }
    view->usual_running = running;
    for (uint32_t at = 0; at < n; at++) {
        if (!(columns->known[at] & LOAD_WAITING)) {
            columns->n_waiting[at] = guess_waiting(view, columns->in_flight[at]);
            score_cache_invalidate(&view->score_cache, at);
        }
    }
}

/* ---- reading members: a member --------------------------------------------------------------- */

/* Moves the member to the tier of its rank. What it adds to ready_in_flight is subtracted.
 * Returns: its position. */
static uint32_t place_member(struct pool_view *view, uint32_t member, uint32_t rank) {
    uint32_t at = view->index_of[member];
    if (at < view->n_ready) {
        view->ready_in_flight -= (double)view->columns.in_flight[at];
    }
    move_to_tier(view, member, rank_tier_of(rank));
    return view->index_of[member];
}

static void read_member(struct pool_view *view, const struct pool_snapshot *snapshot,
                        uint32_t member, uint64_t now_ns) {
    const struct endpoint *endpoint = snapshot->members[member].endpoint;
    const struct load_cell *cell = &snapshot->loads[member];
    const struct candidate_columns *columns = &view->columns;
    uint32_t at = view->index_of[member], rank = endpoint_rank(endpoint);
    float before = columns->in_flight[at];
    uint64_t until_ns = atomic_load_explicit(&cell->until_ns, memory_order_relaxed);
    if (until_ns > now_ns && until_ns < view->until_ns) {
        view->until_ns = until_ns;
    }
    view->n_known -= (columns->known[at] & LOAD_WAITING) != 0;
    if (view->is_mixed) {
        view->known_running -= running_at(view, at);
    }
    if (rank >= ENDPOINT_LIMITED || at >= view->n_ready) {
        at = place_member(view, member, rank);
        before = 0;
    }
    uint32_t in_flight = endpoint_in_flight(endpoint);
    uint32_t debt = endpoint_debt(endpoint); /* failed requests, as if they were still there */
    struct load_estimate load = load_estimate_get(cell, now_ns, in_flight);
    columns->address[at] = snapshot->members[member].hash;
    columns->in_flight[at] = (float)(in_flight + debt);
    columns->n_waiting[at] = load.known & LOAD_WAITING
                                 ? (float)(load.n_waiting + debt)
                                 : guess_waiting(view, (float)(in_flight + debt));
    columns->n_running[at] = (float)(load.known & LOAD_RUNNING ? load.n_running : in_flight);
    read_load(columns, at, &load);
    view->adapters |= load.adapters;
    columns->n_tokens[at] = (float)endpoint_n_tokens(endpoint);
    columns->last_cold_request[at] = endpoint_last_cold_request(endpoint);
    read_response_times(columns, at, endpoint);
    view->n_known += (load.known & LOAD_WAITING) != 0;
    if (at < view->n_ready) {
        view->ready_in_flight += (double)(columns->in_flight[at] - before);
    }
    if (view->is_mixed) {
        view->known_running += running_at(view, at);
    }
    score_cache_invalidate(&view->score_cache, at);
}

static void read_all_members(struct pool_view *view, const struct pool_snapshot *snapshot,
                             uint64_t now_ns) {
    view->until_ns = UINT64_MAX;
    view->read_ns = now_ns;
    view->adapters = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        read_member(view, snapshot, i, now_ns);
    }
}

/* Resets the view for another snapshot; no member is eligible at first. */
static enum status reset_view(struct pool_view *view, const struct pool_snapshot *snapshot,
                              struct error *err) {
    enum status st = grow_columns(view, snapshot->n_members, err);
    if (st != ST_OK) {
        return st;
    }
    view->generation = snapshot->generation;
    view->n_known = 0;
    view->ready_in_flight = 0;
    view->is_mixed = false;
    view->usual_running = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        view->columns.known[i] = 0;
    }
    view->n_ready = view->n_unavoided = view->n_eligible = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        view->columns.member[i] = view->index_of[i] = i;
    }
    return ST_OK;
}

/* Returns: false when changes were overwritten in the list. */
static bool apply_changes(struct pool_view *view, const struct pool_snapshot *snapshot,
                          uint64_t n_changes, uint64_t now_ns) {
    for (uint64_t i = view->n_changes; i < n_changes; i++) {
        uint32_t member;
        if (!pool_changes_get(&snapshot->changes, i, &member)) {
            return false;
        }
        read_member(view, snapshot, member, now_ns);
    }
    return true;
}

enum status pool_view_update(struct pool_view *view, const struct pool_snapshot *snapshot,
                             uint64_t now_ns, struct error *err) {
    bool whole = view->until_ns <= now_ns || now_ns < view->read_ns;
    if (view->generation != snapshot->generation) {
        enum status st = reset_view(view, snapshot, err);
        if (st != ST_OK) {
            return st;
        }
        whole = true;
    }
    uint64_t n_changes = pool_changes_count(&snapshot->changes);
    if (whole || !apply_changes(view, snapshot, n_changes, now_ns)) {
        read_all_members(view, snapshot, now_ns);
    }
    update_guesses(view, snapshot);
    view->n_changes = n_changes;
    return ST_OK;
}
