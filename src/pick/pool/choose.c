/* Choosing by a profile: what the reader knows of the endpoints is brought up to date, and is then
 * the profile's to judge. Without a lock, like choosing within a subset: a pick of another thread
 * at the same moment may not be seen, the next one will be. */
#include "core/event/clock.h"
#include "pick/pool/state.h"

static bool knows_loads(const struct pool_reader *reader) {
    uint64_t loads_valid_until_ns =
        atomic_load_explicit(&reader->pool->loads_valid_until_ns, memory_order_relaxed);
    return loads_valid_until_ns > 0 && loads_valid_until_ns > clock_now_ns();
}

/* While nobody has said anything of late the default has nothing to go by but our own counts. */
const struct profile *pool_active_profile(const struct pool_reader *reader) {
    const struct profile *profile = reader->snapshot->spec->profile;
    if (profile) {
        bool looks = pool_limits_loads(reader->snapshot->spec) && knows_loads(reader);
        return profile_is_least_requests(profile) && !looks ? NULL : profile;
    }
    return knows_loads(reader) ? &PROFILE_DEFAULT : NULL;
}

/* ---- candidates ------------------------------------------------------------------------------ */

void pool_add_candidate(const struct pool_view *view, struct candidate_set *candidates,
                        uint32_t member) {
    uint32_t pos = view->index_of[member];
    if (pos < view->n_eligible) {
        candidate_columns_copy(candidates->columns, candidates->n++, &view->columns, pos);
    }
}

static bool is_ready(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    const struct pool_view *view = parameters;
    return view->index_of[candidates->columns->member[i]] < view->n_ready;
}

/* One that just refused a connection, or was not checked yet, is a candidate only where no other
 * is. */
static void remove_avoided_candidates(const struct pool_view *view,
                                      struct candidate_set *candidates) {
    for (uint32_t i = 0; i < candidates->n && view->n_ready < view->n_eligible; i++) {
        if (is_ready(view, candidates, i)) {
            candidate_set_filter(candidates, view, is_ready);
            return;
        }
    }
}

static enum status collect_subset_candidates(struct pool_reader *reader,
                                             const struct pool_request *request,
                                             struct candidate_set *candidates, struct error *err) {
    struct pool_shortlist none = {.candidates = candidates};
    candidates->columns = candidates->filtered_columns;
    candidates->index_of = NULL;
    enum status st =
        pool_choose_from_subsets(reader, request->subset, request->selection, &none, err);
    remove_avoided_candidates(&reader->view, candidates);
    return st;
}

enum status pool_collect_candidates(struct pool_reader *reader, const struct pool_request *request,
                                    struct str model, struct candidate_set *out,
                                    struct error *err) {
    const struct pool_view *view = &reader->view;
    uint64_t now_ns = clock_now_ns();
    enum status st = pool_view_update(&reader->view, reader->snapshot, now_ns, err);
    *out = (struct candidate_set){.snapshot = reader->snapshot,
                                  .model = model,
                                  .session = request->session,
                                  .prefix = &reader->prefix,
                                  .headers = request->headers,
                                  .prng = &reader->prng,
                                  .now_ns = now_ns,
                                  .adapters = view->adapters,
                                  .columns = &view->columns,
                                  .index_of = view->index_of,
                                  .score = view->score,
                                  .scratch = view->scratch,
                                  .filtered_columns = &view->filtered_columns,
                                  .score_cache = &reader->view.score_cache};
    if (st == ST_OK && (request->subset || request->selection)) {
        return collect_subset_candidates(reader, request, out, err);
    }
    if (st == ST_OK) {
        out->n = view->n_ready > 0 ? view->n_ready : view->n_eligible;
    }
    return st;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Behind the one that was chosen, the best of the others: two looks at all of them, for a log that
 * somebody reads. */
static void trace(const struct profile *profile, const struct candidate_set *candidates,
                  uint32_t chosen, struct pool_trace *out) {
    uint32_t taken[POOL_MAX_TRACED] = {chosen, chosen, chosen};
    out->profile = profile->name;
    out->n_candidates = candidates->n;
    for (out->n = 0; out->n < POOL_MAX_TRACED && out->n < candidates->n; out->n++) {
        uint32_t best = chosen;
        for (uint32_t i = 0; out->n > 0 && i < candidates->n; i++) {
            bool again = i == taken[0] || i == taken[1];
            bool better = best == chosen || candidates->score[i] > candidates->score[best];
            best = better && !again ? i : best;
        }
        taken[out->n] = best;
        out->first[out->n].endpoint = candidate_set_member(candidates, best)->endpoint;
        out->first[out->n].score = candidates->score[best];
    }
}

/* The picker's choices, the first one first. */
static void pick_candidates(const struct profile *profile, const struct pool_request *request,
                            struct candidate_set *candidates, struct pool_shortlist *best) {
    best->by_profile = true;
    while (candidates->n > 0) {
        uint32_t pos = profile_run_picker(profile, candidates, (uint32_t)best->n);
        if (request->trace && best->n == 0) {
            trace(profile, candidates, pos, request->trace);
        }
        best->endpoints[best->n++] = candidate_set_member(candidates, pos)->endpoint;
        if (best->n == best->most) {
            return;
        }
        candidate_set_remove(candidates, pos);
    }
}

/* ---- who is full ----------------------------------------------------------------------------- */

/* May any of them be? Vector loops, where the exact look is a walk over endpoints. */
static bool may_be_full(const struct candidate_set *candidates) {
    const struct pool_spec *spec = candidates->snapshot->spec;
    const struct candidate_columns *columns = candidates->columns;
    return (spec->max_in_flight > 0 && (double)candidate_set_max(candidates, columns->in_flight) >=
                                           (double)spec->max_in_flight) ||
           (spec->queue_depth > 0 && (double)candidate_set_max(candidates, columns->n_waiting) >=
                                         (double)spec->queue_depth) ||
           (spec->kv_cache > 0 &&
            (double)candidate_set_max(candidates, columns->kv_cache_used) >= spec->kv_cache);
}

static bool is_not_full(const void *parameters, const struct candidate_set *candidates,
                        uint32_t i) {
    return !pool_is_member_full(candidates->snapshot, candidates->columns->member[i], parameters,
                                candidates->now_ns);
}

uint32_t pool_count_full_candidates(const struct candidate_set *candidates,
                                    const struct pool_waiter *waiter) {
    uint32_t n = 0;
    if (candidates->n > 0 && may_be_full(candidates)) {
        for (uint32_t i = 0; i < candidates->n; i++) {
            n += !is_not_full(waiter, candidates, i);
        }
    }
    return n;
}

void pool_remove_full_candidates(struct candidate_set *candidates,
                                 const struct pool_waiter *waiter) {
    candidate_set_filter(candidates, waiter, is_not_full);
}

static void run_profile(const struct profile *profile, const struct pool_request *request,
                        struct candidate_set *candidates, struct pool_shortlist *best) {
    uint32_t n = candidates->n;
    profile_run(profile, candidates);
    pick_candidates(profile, request, candidates, best);
    best->n_filtered = best->n == 0 ? n : 0;
}

/* Those that are full are left out where there are others and requests can wait; should the filters
 * then leave none, they are looked at again: it may be one of them that is waited for. */
enum status pool_choose_by_profile(struct pool_reader *reader, const struct profile *profile,
                                   const struct pool_request *request, struct str model,
                                   struct pool_shortlist *best, struct error *err) {
    bool leave_out = reader->snapshot->spec->flow_control.on;
    struct candidate_set candidates;
    enum status st = pool_collect_candidates(reader, request, model, &candidates, err);
    if (st != ST_OK) {
        return st;
    }
    pool_prompt_match(reader, profile, request, model);
    uint32_t n = candidates.n,
             n_full =
                 best->check_full ? pool_count_full_candidates(&candidates, request->waiter) : 0;
    best->full = n > 0 && n_full == n;
    if (leave_out && n_full > 0 && !best->full) {
        pool_remove_full_candidates(&candidates, request->waiter);
        run_profile(profile, request, &candidates, best);
        if (best->n > 0) {
            return ST_OK;
        }
        best->full = true;
        st = pool_collect_candidates(reader, request, model, &candidates, err);
    }
    if (st == ST_OK) {
        run_profile(profile, request, &candidates, best);
    }
    return st;
}
