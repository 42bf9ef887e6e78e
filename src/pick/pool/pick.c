/* One pick, and its explanation. The request is resolved from the snapshot without a lock, and for
 * a profile or a subset the endpoints are chosen without it; then, under the pool's lock, the
 * choice is checked, or made from the ranking, and the endpoint's in-flight count raised. If the
 * pool was updated in between the pick starts again: it is always of the newest snapshot. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/utf8.h"
#include "core/event/clock.h"
#include "pick/pool/no_endpoint.h"
#include "pick/pool/rollout.h"
#include "pick/pool/state.h"

enum { POOL_MAX_PICKED = 1 + PROTOCOL_MAX_FALLBACKS };
static_assert((int)PICKER_MAX_ENDPOINTS == (int)POOL_MAX_PICKED, "a list of a picker fits");

/* The best `most` endpoints so far, best first. */
struct pool_shortlist {
    uint64_t keys[POOL_MAX_PICKED]; /* the rank and, in the lower half, a random number */
    struct endpoint *endpoints[POOL_MAX_PICKED];
    size_t n, most;
    uint32_t n_filtered;           /* candidates before the filters, where the filters removed
                                      all */
    bool check_full;               /* whether an endpoint is full makes a difference; not where the
                                      pool is measured as a whole */
    bool full;                     /* with check_full: all candidates are; of a gated trial: the
                                      pool is */
    bool is_reduced;               /* chosen without endpoints that are full */
    bool is_list;                  /* the profile's picker wants all of them in the answer */
    struct pool_gate gate;         /* of the request's priority */
    bool by_profile;               /* chosen by a profile */
    bool avoided;                  /* the first one is unchecked or avoided: there was no other */
    uint64_t pick_number;          /* of the pool's picks */
    const struct profile *profile; /* that chose; NULL: none did */
    struct candidate_set *candidates; /* not NULL: members are added to it instead */
    /* Not to be chosen while there are others: they fail this kind of requests. */
    const struct endpoint *unfit[ENDPOINTS_OF_KIND];
    size_t n_unfit;
    const struct endpoint *reserved; /* has a slot for this request, which is counted in its rank;
                                         NULL: none */
};

/* ---- the model ------------------------------------------------------------------------------- */

/* Returns: ptr NULL when no target has a weight. */
static struct str pick_weighted_target(struct prng *prng, struct pool_targets targets) {
    uint64_t total = 0;
    for (size_t i = 0; i < targets.n; i++) {
        total += targets.items[i].weight;
    }
    uint64_t rolled = total > 0 ? prng_next(prng) % total : 0;
    for (size_t i = 0; i < targets.n; i++) {
        if (rolled < targets.items[i].weight) {
            return targets.items[i].model;
        }
        rolled -= targets.items[i].weight;
    }
    return str_make(NULL, 0);
}

/* A rewrite takes precedence over the model's own targets. */
static struct pool_targets targets_of(const struct pool_snapshot *snapshot,
                                      const struct pool_model_entry *name) {
    const struct pool_rewrite *rewrite = name ? name->rewrite : snapshot->default_rewrite;
    if (rewrite) {
        return rewrite->targets;
    }
    return name && name->model ? name->model->targets : (struct pool_targets){NULL, 0};
}

enum { PRINTED_NAME_BYTES = 200 };

/* For an error text: with '?' for control characters, of which NUL would end the text. */
static struct str print_name(struct str name, char out[PRINTED_NAME_BYTES]) {
    size_t n = name.len < PRINTED_NAME_BYTES ? name.len : PRINTED_NAME_BYTES;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        out[i] = c < ' ' || c == 0x7f ? '?' : name.ptr[i];
    }
    return str_make(out, utf8_valid_prefix(out, n));
}

/* Clause: "Matching An InferenceModel". */
static enum status resolve_model(struct pool_reader *reader, struct str model,
                                 struct pool_pick *out, struct error *err) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    const struct pool_model_entry *name = pool_snapshot_find_name(snapshot, model);
    if (!name && !snapshot->default_rewrite && snapshot->spec->strict_models) {
        char name_text[PRINTED_NAME_BYTES];
        return error_set(err, ST_UNKNOWN_MODEL,
                         "no model is called \"%.*s\" (models: in the picker's configuration "
                         "lists those that are)",
                         STR_ARG(print_name(model, name_text)));
    }
    out->known_model = name != NULL;
    out->criticality = name && name->model ? name->model->criticality : POOL_STANDARD;
    struct pool_targets targets = targets_of(snapshot, name);
    out->target = pick_weighted_target(&reader->prng, targets);
    if (targets.n > 0 && !out->target.ptr) {
        char name_text[PRINTED_NAME_BYTES];
        return error_set(err, ST_UNKNOWN_MODEL,
                         "the model \"%.*s\" has no target with a weight above 0",
                         STR_ARG(print_name(model, name_text)));
    }
    return ST_OK;
}

static enum status resolve_request(struct pool_reader *reader, const struct pool_request *request,
                                   struct pool_pick *out, struct error *err) {
    *out = (struct pool_pick){.generation = reader->snapshot->generation,
                              .pool = reader->snapshot->spec->name};
    enum status st = request->model.ptr ? resolve_model(reader, request->model, out, err) : ST_OK;
    const struct pool_objective *objective =
        request->objective.ptr ? pool_snapshot_find_objective(reader->snapshot, request->objective)
                               : NULL;
    out->priority = objective ? objective->priority : pool_criticality_priority(out->criticality);
    out->sheddable = objective ? objective->priority < 0 : out->criticality == POOL_SHEDDABLE;
    return st;
}

/* ---- the shortlist --------------------------------------------------------------------------- */

static void add_candidate(const struct pool_view *view, struct candidate_set *candidates,
                          uint32_t member) {
    uint32_t pos = view->index_of[member];
    if (pos < view->n_eligible) {
        candidate_columns_copy(candidates->columns, candidates->n++, &view->columns, pos);
    }
}

static bool is_unfit(const struct pool_shortlist *best, const struct endpoint *endpoint) {
    for (size_t i = 0; i < best->n_unfit; i++) {
        if (best->unfit[i] == endpoint) {
            return true;
        }
    }
    return false;
}

static void shortlist_add(struct pool_shortlist *best, struct prng *prng,
                          struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    if (rank == ENDPOINT_OUT || is_unfit(best, endpoint)) {
        return;
    }
    rank -= endpoint == best->reserved;
    uint64_t key = (uint64_t)rank << 32 | prng_next(prng) >> 32;
    if (best->n == best->most && key >= best->keys[best->n - 1]) {
        return;
    }
    size_t at = best->n < best->most ? best->n++ : best->n - 1;
    for (; at > 0 && best->keys[at - 1] > key; at--) {
        best->keys[at] = best->keys[at - 1];
        best->endpoints[at] = best->endpoints[at - 1];
    }
    best->keys[at] = key;
    best->endpoints[at] = endpoint;
}

/* ---- choosing from subsets ------------------------------------------------------------------- */

/* Reserves two marks that no member has yet: reader->subset_mark, and the one before. */
static enum status begin_subset_marks(struct pool_reader *reader, struct error *err) {
    uint32_t n = reader->snapshot->n_members;
    if (reader->n_subset_marks < n || reader->subset_mark > UINT32_MAX - 2) {
        uint32_t *member_mark = calloc((size_t)n + 1, sizeof(*member_mark));
        if (!member_mark) {
            return error_no_memory(err, "a subset of %u endpoints", n);
        }
        free(reader->subset_marks);
        reader->subset_marks = member_mark;
        reader->n_subset_marks = n;
        reader->subset_mark = 0;
    }
    reader->subset_mark += 2;
    return ST_OK;
}

/* Marks the members of the first of two subsets. */
static void mark_subset_members(struct pool_reader *reader, const struct subset *subset) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member =
            pool_snapshot_find_listed(snapshot, &subset->items[i], &n);
        for (; n > 0; n--, member++) {
            reader->subset_marks[member - snapshot->members] = reader->subset_mark - 1;
        }
    }
}

static void shortlist_add_member(struct pool_reader *reader, const struct pool_member *member,
                                 struct pool_shortlist *best) {
    if (best->candidates) {
        add_candidate(&reader->view, best->candidates,
                      (uint32_t)(member - reader->snapshot->members));
    } else {
        shortlist_add(best, &reader->prng, member->endpoint);
    }
}

/* Adds the members of `subset`, each once; with `marked` only those that are in the other
 * subset. */
static void shortlist_add_subset(struct pool_reader *reader, const struct subset *subset,
                                 bool marked, struct pool_shortlist *best) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member =
            pool_snapshot_find_listed(snapshot, &subset->items[i], &n);
        for (; n > 0; n--, member++) {
            uint32_t *member_mark = &reader->subset_marks[member - snapshot->members];
            if (marked ? *member_mark == reader->subset_mark - 1
                       : *member_mark != reader->subset_mark) {
                *member_mark = reader->subset_mark;
                shortlist_add_member(reader, member, best);
            }
        }
    }
}

/* Without a subset from all members. */
static enum status choose_from_subsets(struct pool_reader *reader, const struct subset *one,
                                       const struct subset *other, struct pool_shortlist *best,
                                       struct error *err) {
    if (!one && !other) {
        for (uint32_t i = 0; i < reader->snapshot->n_members; i++) {
            shortlist_add(best, &reader->prng, reader->snapshot->members[i].endpoint);
        }
        return ST_OK;
    }
    enum status st = begin_subset_marks(reader, err);
    if (st != ST_OK) {
        return st;
    }
    const struct subset *last = other ? other : one;
    assert(last);
    if (one && other) {
        mark_subset_members(reader, one);
    }
    shortlist_add_subset(reader, last, one && other, best);
    return ST_OK;
}

/* ---- choosing by profile --------------------------------------------------------------------- */

static bool knows_loads(const struct pool_reader *reader) {
    uint64_t loads_valid_until_ns =
        atomic_load_explicit(&reader->pool->loads_valid_until_ns, memory_order_relaxed);
    return loads_valid_until_ns > 0 && loads_valid_until_ns > clock_now_ns();
}

/* Without recent load reports the default profile can only compare in-flight counts. */
const struct profile *pool_active_profile(const struct pool_reader *reader) {
    const struct profile *profile = reader->snapshot->spec->profile;
    if (reader->snapshot->spec->handler || reader->snapshot->spec->rollout) {
        return profile;
    }
    if (profile) {
        bool looks = pool_limits_loads(reader->snapshot->spec) && knows_loads(reader);
        bool is_bare = profile_is_least_requests(profile) && !profile->needs.tokens;
        return is_bare && !looks ? NULL : profile;
    }
    return knows_loads(reader) ? &PROFILE_DEFAULT : NULL;
}

/* The profile of the request's stage. Returns: ST_BAD_FIELD where the header names none. */
static enum status find_profile(const struct pool_reader *reader,
                                const struct pool_request *request, const struct profile **out,
                                struct error *err) {
    const struct profile_handler *handler = reader->snapshot->spec->handler;
    if (!handler) {
        *out = pool_active_profile(reader);
        return ST_OK;
    }
    size_t i = profile_handler_find(handler, request->stage, &request->headers);
    *out = i < handler->n_profiles ? &handler->profiles[i] : NULL;
    if (*out) {
        return ST_OK;
    }
    if (!handler->header.ptr || request->stage != STAGE_DECODE) {
        return error_set(err, ST_NO_ENDPOINT, "the pool has no profile for the stage %s any more",
                         stage_role_name(request->stage));
    }
    return error_set(err, ST_BAD_FIELD,
                     "the header %.*s names no profile of the picker's configuration, and neither "
                     "does defaultProfile (%s)",
                     STR_ARG(handler->header), "header-profile-handler");
}

/* ---- candidates ------------------------------------------------------------------------------ */

struct best_group {
    const struct pool_view *view;
    uint32_t end; /* the position after its last member */
};

static bool is_in_group(const void *parameters, const struct candidate_set *candidates,
                        uint32_t i) {
    const struct best_group *group = parameters;
    return group->view->index_of[candidates->columns->member[i]] < group->end;
}

/* Endpoints whose window is used up are candidates only where there are no better ones, and those
 * that are avoided or were not checked yet where there are no others at all. */
static void remove_avoided_candidates(const struct pool_view *view, uint32_t beyond,
                                      struct candidate_set *candidates) {
    const struct best_group groups[] = {{view, view->n_ready}, {view, view->n_unavoided}};
    bool found = view->n_ready == view->n_eligible;
    for (size_t k = 0; k < 2 && !found; k++) {
        found = groups[k].end > beyond && candidate_set_prefer(candidates, &groups[k], is_in_group);
    }
}

static enum status collect_subset_candidates(struct pool_reader *reader,
                                             const struct pool_request *request, uint32_t beyond,
                                             struct candidate_set *candidates, struct error *err) {
    struct pool_shortlist none = {.candidates = candidates, .n_unfit = 0};
    candidates->columns = candidates->filtered_columns;
    candidates->index_of = NULL;
    enum status st = choose_from_subsets(reader, request->subset, request->selection, &none, err);
    remove_avoided_candidates(&reader->view, beyond, candidates);
    return st;
}

/* The end of the best group of the view that has members beyond the first so many. */
static uint32_t end_of_group(const struct pool_view *view, uint32_t beyond) {
    return view->n_ready > beyond       ? view->n_ready
           : view->n_unavoided > beyond ? view->n_unavoided
                                        : view->n_eligible;
}

enum status pool_collect_candidates(struct pool_reader *reader, const struct pool_request *request,
                                    struct str model, uint32_t beyond, struct candidate_set *out,
                                    struct error *err) {
    const struct pool_view *view = &reader->view;
    uint64_t now_ns = clock_now_ns();
    enum status st = pool_view_update(&reader->view, reader->snapshot, now_ns, err);
    *out = (struct candidate_set){
        .snapshot = reader->snapshot,
        .model = model,
        .session = request->session,
        .prefixes = reader->prefixes,
        .media = reader->media,
        .n_tokens = request->n_tokens,
        .peer =
            request->peer ? pool_snapshot_find(reader->snapshot, &request->peer->address) : NULL,
        .headers = request->headers,
        .reserved = request->waiter ? request->waiter->reserved : NULL,
        .reserved_tokens = request->waiter ? (float)request->waiter->n_reserved_tokens : 0,
        .prng = &reader->prng,
        .now_ns = now_ns,
        .adapters = view->adapters,
        .columns = &view->columns,
        .index_of = view->index_of,
        .score = view->score,
        .scratch = view->scratch,
        .order = view->order,
        .filtered_columns = &view->filtered_columns,
        .score_cache = &reader->view.score_cache};
    if (reader->snapshot->n_sessions > 0) {
        session_choices_begin(reader->snapshot, &request->headers, now_ns, reader->sessions);
        out->sessions = reader->sessions;
    }
    if (st == ST_OK && (request->subset || request->selection)) {
        st = collect_subset_candidates(reader, request, beyond, out, err);
    } else if (st == ST_OK) {
        out->n = end_of_group(view, beyond);
        out->is_summed = beyond == 0 && view->n_ready > 0;
        out->n_in_flight = (float)view->ready_in_flight;
    }
    const struct rollout_screener *screener = reader->snapshot->spec->rollout;
    return st == ST_OK && screener && out->n > 0
               ? rollout_screen(screener, reader->snapshot->rollout, request->fellow, out, err)
               : st;
}

/* ---- choosing by profile: running it --------------------------------------------------------- */

/* The picked candidate, then the best of the others, found in two passes: only for debug logs. */
static void fill_trace(const struct profile *profile, const struct candidate_set *candidates,
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

static void copy_scores(const struct candidate_set *candidates, struct pool_scores *out) {
    out->n = 0;
    out->items = arena_calloc(out->arena, candidates->n, sizeof(*out->items));
    out->failed = !out->items;
    for (uint32_t i = 0; !out->failed && i < candidates->n; i++) {
        struct str text = endpoint_text(candidate_set_member(candidates, i)->endpoint);
        out->items[i] = (struct pool_score){arena_dup(out->arena, text), candidates->score[i]};
        out->failed = !out->items[i].endpoint.ptr;
        out->n++;
    }
}

/* The picker's choices, in order. */
static void pick_candidates(const struct profile *profile, const struct pool_request *request,
                            struct candidate_set *candidates, struct pool_shortlist *best) {
    best->by_profile = true;
    while (candidates->n > 0) {
        uint32_t pos = profile_run_picker(profile, candidates, (uint32_t)best->n);
        if (request->trace && best->n == 0) {
            fill_trace(profile, candidates, pos, request->trace);
        }
        if (request->scores && best->n == 0) {
            copy_scores(candidates, request->scores);
        }
        best->endpoints[best->n++] = candidate_set_member(candidates, pos)->endpoint;
        if (best->n == best->most) {
            return;
        }
        candidate_set_remove(candidates, pos);
    }
}

/* ---- choosing by profile: full endpoints ----------------------------------------------------- */

/* For which request an endpoint is full or not. */
struct full_test {
    const struct pool_waiter *waiter; /* NULL: none */
    struct pool_gate gate;
};

/* Whether any candidate may be full. Vector loops: the exact test reads each endpoint. */
static bool may_be_full(const struct candidate_set *candidates, struct pool_gate gate) {
    const struct pool_spec *spec = candidates->snapshot->spec;
    const struct candidate_columns *columns = candidates->columns;
    double in_flight =
        spec->max_in_flight > 0 ? (double)candidate_set_max(candidates, columns->in_flight) : 0;
    double n_waiting =
        spec->queue_depth > 0 ? (double)candidate_set_max(candidates, columns->n_waiting) : 0;
    double used =
        spec->kv_cache > 0 ? (double)candidate_set_max(candidates, columns->kv_cache_used) : 0;
    return gate.ceiling < 1 ? pool_used_share(spec, in_flight, n_waiting, used) >= gate.ceiling
                            : pool_limit_reached(spec, in_flight, n_waiting, used) != NULL;
}

static bool is_not_full(const void *parameters, const struct candidate_set *candidates,
                        uint32_t i) {
    const struct full_test *test = parameters;
    return !pool_is_member_full(candidates->snapshot, candidates->columns->member[i], test->waiter,
                                test->gate, candidates->now_ns);
}

static uint32_t count_full_candidates(const struct candidate_set *candidates,
                                      const struct full_test *test) {
    uint32_t n = 0;
    if (candidates->n > 0 && may_be_full(candidates, test->gate)) {
        for (uint32_t i = 0; i < candidates->n; i++) {
            n += !is_not_full(test, candidates, i);
        }
    }
    return n;
}

static void remove_full_candidates(struct candidate_set *candidates, const struct full_test *test) {
    candidate_set_filter(candidates, test, is_not_full);
}

static void run_profile(struct pool_reader *reader, const struct profile *profile,
                        const struct pool_request *request, struct candidate_set *candidates,
                        struct pool_shortlist *best) {
    uint32_t n = candidates->n;
    candidates->clock = reader->clock_runs ? &reader->clock : NULL;
    profile_run(profile, candidates);
    pick_candidates(profile, request, candidates, best);
    if (candidates->clock) {
        plugin_times_add(&reader->pool->plugin_times, profile, candidates->clock);
        reader->clock_runs = false;
    }
    best->n_filtered = best->n == 0 ? n : 0;
}

/* Starts the clock if it is the turn of this run. */
static void start_clock(struct pool_reader *reader) {
    reader->clock_runs = reader->n_unmeasured == 0;
    if (reader->clock_runs) {
        reader->n_unmeasured = PLUGIN_TIMES_INTERVAL;
        reader->clock.steps = reader->clock.producers = 0;
    }
    reader->n_unmeasured--;
}

static bool is_fit(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    return !is_unfit(parameters, candidate_set_member(candidates, i)->endpoint);
}

/* Those that fail this kind of requests are candidates only where there are no others. */
static enum status collect_fit_candidates(struct pool_reader *reader,
                                          const struct pool_request *request, struct str model,
                                          uint32_t beyond, const struct pool_shortlist *best,
                                          struct candidate_set *out, struct error *err) {
    enum status st = pool_collect_candidates(reader, request, model, beyond, out, err);
    if (st == ST_OK && best->n_unfit > 0) {
        candidate_set_prefer(out, best, is_fit);
    }
    return st;
}

/* With flow control, full endpoints are left out while others have capacity. If the filters then
 * leave none, all candidates are filtered again: the request may wait for a full one. */
static enum status choose_from_group(struct pool_reader *reader, const struct profile *profile,
                                     const struct pool_request *request, struct str model,
                                     uint32_t beyond, struct pool_shortlist *best,
                                     struct error *err) {
    bool leave_out = reader->snapshot->spec->flow_control.on;
    const struct full_test test = {request->waiter, best->gate};
    struct candidate_set candidates;
    enum status st = collect_fit_candidates(reader, request, model, beyond, best, &candidates, err);
    if (st != ST_OK) {
        return st;
    }
    start_clock(reader);
    pool_prompt_match(reader, profile, request, model, &candidates);
    uint32_t n = candidates.n,
             n_full = best->check_full ? count_full_candidates(&candidates, &test) : 0;
    best->full = n > 0 && n_full == n;
    best->is_reduced = leave_out && n_full > 0 && !best->full;
    if (best->is_reduced) {
        remove_full_candidates(&candidates, &test);
        run_profile(reader, profile, request, &candidates, best);
        if (best->n > 0) {
            return ST_OK;
        }
        best->full = true;
        best->is_reduced = false;
        st = collect_fit_candidates(reader, request, model, beyond, best, &candidates, err);
    }
    if (st == ST_OK) {
        run_profile(reader, profile, request, &candidates, best);
    }
    return st;
}

/* Where filters leave none of the best endpoints, as those that decode may all be avoided while one
 * that prefills is not, the next best are tried. */
static enum status choose_by_profile(struct pool_reader *reader, const struct profile *profile,
                                     const struct pool_request *request, struct str model,
                                     struct pool_shortlist *best, struct error *err) {
    enum status st = choose_from_group(reader, profile, request, model, 0, best, err);
    uint32_t end = end_of_group(&reader->view, 0);
    while (st == ST_OK && best->n == 0 && profile->n_filters > 0 && end < reader->view.n_eligible) {
        uint32_t beyond = end;
        st = choose_from_group(reader, profile, request, model, beyond, best, err);
        end = end_of_group(&reader->view, beyond);
    }
    return st;
}

/* ---- one attempt ---------------------------------------------------------------------------- */

/* Ends avoidances of endpoints that are due; without any, one load. */
static void expire_avoidances(struct pool *pool) {
    uint64_t due_ns = atomic_load_explicit(&pool->next_avoidance_expiry_ns, memory_order_relaxed);
    if (due_ns < UINT64_MAX && due_ns <= clock_now_ns()) {
        pool_tick(pool, 0);
    }
}

enum { MOST_NOT_ADMITTED = 100 };

/* The state of a pick. */
struct trial {
    struct pool_reader *reader;
    const struct pool_request *request;
    struct pool_pick *out;
    struct pool_shortlist best;
    const struct profile *profile; /* NULL: in-flight counts alone */
    uint64_t kind;                 /* of the request; 0: unknown */
    bool chosen;                   /* the endpoints were chosen without the lock */
    bool is_gated;                 /* the saturation of the pool as a whole decides if the request
                                      is sent now: once for all its stages */
    unsigned n_not_admitted;       /* attempts that is_still_admitted has ended */
    bool is_closed;                /* the pool was found saturated as a whole, under the lock */
    uint64_t capacity_epoch;       /* before choosing */
};

/* Whether a saturated pool refuses the request. */
static bool is_shed(const struct pool_spec *spec, const struct pool_pick *pick) {
    return pick->sheddable && !(spec->flow_control.on && spec->flow_control.sheddable_waits);
}

static bool can_wait(const struct trial *trial) {
    const struct pool_spec *spec = trial->reader->snapshot->spec;
    return trial->request->waiter && !is_shed(spec, trial->out) && spec->flow_control.on;
}

/* From the whole pool, under the lock. */
static void choose_from_ranking(struct pool_reader *reader, struct pool_shortlist *best) {
    struct ranked *ranked[POOL_MAX_PICKED];
    best->n = ranking_find_lowest(&reader->pool->ranking, &reader->prng, best->most, ranked);
    for (size_t i = 0; i < best->n; i++) {
        best->endpoints[i] = (struct endpoint *)(void *)ranked[i];
    }
}

static bool is_first_full(const struct trial *trial, const struct pool_waiter *waiter) {
    const struct pool_snapshot *snapshot = trial->reader->snapshot;
    const struct endpoint *first = trial->best.endpoints[0];
    if (!pool_limits_loads(snapshot->spec) && !waiter && !snapshot->ceilings) {
        return pool_limit_reached(snapshot->spec, endpoint_in_flight(first), 0, 0) != NULL;
    }
    const struct pool_member *member = pool_snapshot_find(snapshot, &first->address);
    return member && pool_is_member_full(snapshot, (uint32_t)(member - snapshot->members), waiter,
                                         trial->best.gate, clock_now_ns());
}

/* A waiter that was notified has passed a soft limit already. */
static struct pool_gate gate_of(const struct trial *trial) {
    struct pool *pool = trial->reader->pool;
    const struct pool_snapshot *snapshot = trial->reader->snapshot;
    const struct pool_waiter *waiter = trial->request->waiter;
    bool is_soft =
        snapshot->ceilings && snapshot->spec->flow_control.usage.kind == USAGE_SOFT_REFLECTIVE;
    if (is_soft && waiter && waiter->notified) {
        return (struct pool_gate){.ceiling = 1};
    }
    uint64_t cycle =
        is_soft ? atomic_fetch_add_explicit(&pool->n_cycles, 1, memory_order_relaxed) + 1 : 0;
    return pool_gate_of(snapshot, trial->out->priority, cycle);
}

/* Before the lock, as far as it is known: for what a request needs that waits. A notified one has a
 * part of the whole reserved. */
static bool seems_held_by_pool(const struct trial *trial) {
    const struct pool_waiter *waiter = trial->request->waiter;
    return trial->is_gated &&
           (trial->is_closed ||
            (!(waiter && waiter->notified) &&
             pool_seems_closed(trial->reader->pool, trial->reader->snapshot, trial->best.gate)));
}

/* Chooses without the lock where there is a profile, a subset, or an unfit endpoint. */
static enum status choose_endpoints(struct trial *trial, struct str model, struct error *err) {
    struct pool_reader *reader = trial->reader;
    const struct pool_request *request = trial->request;
    const struct profile *profile = trial->profile;
    const struct pool_spec *spec = reader->snapshot->spec;
    struct pool_shortlist *best = &trial->best;
    trial->capacity_epoch =
        atomic_load_explicit(&reader->pool->capacity_epoch, memory_order_relaxed);
    trial->chosen = profile || request->subset || request->selection || best->n_unfit > 0;
    best->profile = profile;
    best->n = 0;
    best->most = 1 + request->n_fallbacks;
    uint32_t n_listed = profile ? profile_max_endpoints(profile) : 1;
    best->is_list = n_listed > 1;
    best->most = n_listed > best->most ? n_listed : best->most;
    best->candidates = NULL;
    best->reserved = request->waiter ? request->waiter->reserved : NULL;
    best->by_profile = false;
    best->n_filtered = 0;
    best->full = false;
    best->is_reduced = false;
    bool stops_when_full = trial->out->sheddable || spec->flow_control.on;
    bool by_pool = pool_spec_is_by_pool(spec);
    best->check_full = stops_when_full && !by_pool;
    trial->is_gated = stops_when_full && by_pool && !request->is_admitted;
    best->gate = gate_of(trial);
    if (!trial->chosen) {
        return ST_OK;
    }
    if (profile) {
        return choose_by_profile(reader, profile, request, model, best, err);
    }
    enum status st = choose_from_subsets(reader, request->subset, request->selection, best, err);
    if (st == ST_OK && best->n == 0 && best->n_unfit > 0) {
        best->n_unfit = 0;
        st = choose_from_subsets(reader, request->subset, request->selection, best, err);
    }
    if (st == ST_OK && best->check_full && best->n > 0) { /* the first one has the fewest
                                                             requests */
        best->full = is_first_full(trial, request->waiter);
    }
    return st;
}

/* The result of an attempt. */
enum attempt { ATTEMPT_AGAIN, ATTEMPT_PICKED, ATTEMPT_NONE, ATTEMPT_SATURATED, ATTEMPT_HELD };

/* Whether the endpoint, chosen without the lock, was not avoided then. */
static bool was_preferred(const struct trial *trial) {
    const struct pool_view *view = &trial->reader->view;
    const struct pool_shortlist *best = &trial->best;
    return best->by_profile ? view->index_of[best->endpoints[0]->member] < view->n_ready
                            : best->keys[0] >> 32 < ENDPOINT_LIMITED;
}

/* Under the lock. Whether filters by requests in flight would still keep the endpoint. Their
 * columns are floats: a difference in the last digit does not matter more than a few times. */
static bool is_still_admitted(struct trial *trial) {
    const struct profile *profile = trial->best.by_profile ? trial->best.profile : NULL;
    const struct endpoint *endpoint = trial->best.endpoints[0];
    bool admits = true;
    for (size_t i = 0; profile && i < profile->n_filters && admits; i++) {
        const struct profile_step *step = &profile->filters[i];
        admits = !step->plugin->admits ||
                 step->plugin->admits(step->parameters, endpoint_in_flight(endpoint),
                                      endpoint_n_tokens(endpoint));
    }
    return admits || ++trial->n_not_admitted > MOST_NOT_ADMITTED;
}

/* Under the lock. Whether the choice still holds after changes by other threads. */
static bool is_choice_current(struct trial *trial) {
    const struct pool_shortlist *best = &trial->best;
    uint64_t capacity_epoch =
        atomic_load_explicit(&trial->reader->pool->capacity_epoch, memory_order_relaxed);
    if (!endpoint_is_eligible(best->endpoints[0])) {
        return false;
    }
    if (trial->chosen && endpoint_is_avoided(best->endpoints[0]) && was_preferred(trial)) {
        return false; /* another request used up its window */
    }
    if (trial->chosen && !is_still_admitted(trial)) {
        return false;
    }
    bool leaves_out = trial->reader->snapshot->spec->flow_control.on && best->check_full;
    if (!trial->chosen || !leaves_out) {
        return true;
    }
    return best->full ? capacity_epoch == trial->capacity_epoch : !is_first_full(trial, NULL);
}

/* Whether unrestricted requests are queued before this one: of any priority, as there is capacity
 * for none of them. */
static bool has_waiters_ahead(const struct trial *trial) {
    const struct pool_waiter *waiter = trial->request->waiter;
    return trial->reader->snapshot->spec->flow_control.on && !(waiter && waiter->notified) &&
           atomic_load_explicit(&trial->reader->pool->n_unrestricted, memory_order_relaxed) > 0;
}

/* Under the lock. With ceilings there may be capacity, but not for the lower priorities that are
 * queued. */
static bool is_behind_waiters(const struct trial *trial) {
    return has_waiters_ahead(trial) &&
           (!trial->reader->snapshot->ceilings ||
            pool_has_queued_from(trial->reader->pool, trial->out->priority));
}

/* Under the lock. Filters that go by loads leave none where all endpoints are full: as upstream,
 * the pool as a whole is asked first. */
static bool is_held_by_pool(const struct trial *trial) {
    return trial->is_gated && trial->best.n_filtered > 0 &&
           pool_is_gate_closed(trial->reader->pool, trial->best.gate);
}

/* Under the lock. Chooses from the ranking where nothing was chosen before. */
static enum attempt take_endpoint(struct trial *trial) {
    struct pool *pool = trial->reader->pool;
    struct pool_shortlist *best = &trial->best;
    if (!trial->chosen) {
        choose_from_ranking(trial->reader, best);
        best->full = best->n > 0 && best->check_full && is_first_full(trial, NULL);
    }
    if (best->n == 0 && !is_held_by_pool(trial)) {
        return can_wait(trial) && pool_awaits_endpoint(pool) ? ATTEMPT_SATURATED : ATTEMPT_NONE;
    }
    if (best->n > 0 && !is_choice_current(trial)) {
        return ATTEMPT_AGAIN;
    }
    if (trial->is_gated) {
        bool is_closed = pool_is_gate_closed(pool, best->gate);
        if (is_closed && !best->full && !trial->is_closed) {
            trial->is_closed = true;
            return ATTEMPT_AGAIN; /* what it needs to wait is prepared without the lock */
        }
        best->full = is_closed;
    }
    if ((best->full || is_behind_waiters(trial)) &&
        (is_shed(trial->reader->snapshot->spec, trial->out) || can_wait(trial))) {
        return ATTEMPT_SATURATED;
    }
    if (best->n == 0) {
        return ATTEMPT_NONE;
    }
    if (trial->request->may_hold && best->profile && best->profile->needs.burst_on) {
        return ATTEMPT_HELD;
    }
    struct endpoint *picked = best->endpoints[0];
    best->avoided = endpoint_is_avoided(picked);
    pool_prompt_add_in_flight(trial->reader, trial->request, best->profile, picked,
                              &trial->out->ticket);
    endpoint_add_request(pool, picked);
    atomic_store_explicit(&picked->n_picked, endpoint_n_picked(picked) + 1, memory_order_relaxed);
    best->pick_number = ++pool->n_picks;
    if (trial->reader->snapshot->n_sessions > 0 && best->profile) {
        session_choices_commit(trial->reader->snapshot, trial->reader->sessions, best->is_reduced,
                               best->profile, trial->request->stage == STAGE_DECODE, picked->member,
                               clock_now_ns());
    }
    if (trial->kind != 0) {
        pool_count_kind(pool, trial->kind, picked);
    }
    return ATTEMPT_PICKED;
}

/* Releases the slot that was reserved for a notified waiter, in the same step as its pick. */
static enum attempt take_for_notified(struct trial *trial, struct pool_waiter *waiter,
                                      struct pool_notifications *notifications) {
    struct pool *pool = trial->reader->pool;
    struct endpoint *reserved = waiter->reserved;
    if (reserved) {
        pool_release_slot(pool, waiter);
    }
    enum attempt attempt = take_endpoint(trial);
    if (attempt == ATTEMPT_AGAIN || attempt == ATTEMPT_HELD) {
        if (reserved) {
            pool_reserve_slot(pool, waiter);
        }
        return attempt;
    }
    waiter->reserved = NULL;
    bool there = attempt == ATTEMPT_PICKED && reserved == trial->best.endpoints[0];
    if (reserved && (attempt == ATTEMPT_SATURATED || there)) {
        pool_set_stalled(pool, reserved, !there);
    }
    if (attempt == ATTEMPT_SATURATED && can_wait(trial)) {
        return attempt;
    }
    pool_dequeue_locked(pool, waiter, attempt == ATTEMPT_PICKED ? FLOW_DISPATCHED : FLOW_REFUSED,
                        notifications);
    if (reserved && !there) {
        pool_notify_waiters(pool, reserved, notifications);
    }
    return attempt;
}

/* Sets `*st` to the result of pool_enqueue, for a request that has to wait. */
static enum attempt run_attempt(struct trial *trial, enum status *st, struct error *err) {
    struct pool *pool = trial->reader->pool;
    struct pool_waiter *waiter = trial->request->waiter;
    struct pool_notifications notifications = {NULL};
    enum attempt result = ATTEMPT_AGAIN;
    lock_acquire(&pool->lock);
    if (pool->snapshot == trial->reader->snapshot) {
        result = waiter && waiter->notified ? take_for_notified(trial, waiter, &notifications)
                                            : take_endpoint(trial);
    }
    if (result == ATTEMPT_SATURATED && can_wait(trial)) {
        *st =
            pool_enqueue(trial->reader, trial->request, trial->out->priority, &notifications, err);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
    return result;
}

static enum status no_endpoint_error(const struct trial *trial, struct error *err) {
    const struct pool_request *request = trial->request;
    struct pool_stats stats;
    pool_get_stats(trial->reader->pool, &stats);
    return pool_no_endpoint_error(&(struct pool_no_endpoint){.n_endpoints = stats.n_endpoints,
                                                             .n_ready = stats.n_ready,
                                                             .n_filtered = trial->best.n_filtered,
                                                             .subset = request->subset
                                                                           ? request->subset
                                                                           : request->selection},
                                  err);
}

static enum status saturated_error(const struct pool_spec *spec, struct error *err) {
    if (pool_spec_is_by_pool(spec)) {
        return error_set(err, ST_SATURATED,
                         "pool saturated: its endpoints have as much together as the saturation "
                         "detector of the picker's configuration permits, and the request is "
                         "sheddable");
    }
    if (pool_limits_loads(spec) || spec->flow_control.on) {
        return error_set(err, ST_SATURATED,
                         "pool saturated: every endpoint is full (saturation in the picker's "
                         "configuration), and the request is sheddable");
    }
    return error_set(err, ST_SATURATED,
                     "pool saturated: every endpoint has %llu requests in flight or more "
                     "(max_in_flight in the picker's configuration), and the request is sheddable",
                     (unsigned long long)spec->max_in_flight);
}

/* The mean load of the endpoints whose loads are known; those of which none is known, or an old
 * one, keep no request out. */
static enum status mean_load(struct pool_reader *reader, double *out, struct error *err) {
    const struct pool_admitter *admitter = &reader->snapshot->spec->admitter;
    const struct pool_view *view = &reader->view;
    const struct candidate_columns *columns = &view->columns;
    enum status st = pool_view_update(&reader->view, reader->snapshot, clock_now_ns(), err);
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; st == ST_OK && i < view->n_eligible; i++) {
        bool knows_waiting = (columns->known[i] & LOAD_WAITING) != 0;
        bool knows_cache = (columns->known[i] & LOAD_KV_CACHE) != 0;
        double waiting = knows_waiting ? (double)columns->n_waiting[i] / admitter->queue_depth : 0;
        double cache = knows_cache ? (double)columns->kv_cache_used[i] / admitter->kv_cache : 0;
        sum += waiting > cache ? waiting : cache;
        n += knows_waiting || knows_cache;
    }
    *out = n > 0 ? sum / n : 0;
    return st;
}

/* Once for each request: one that waits has been admitted. */
static enum status admit(const struct trial *trial, struct error *err) {
    struct pool_reader *reader = trial->reader;
    const struct pool_admitter *admitter = &reader->snapshot->spec->admitter;
    const struct pool_waiter *waiter = trial->request->waiter;
    double load;
    if (!admitter->on || !trial->out->sheddable || trial->request->is_admitted ||
        (waiter && waiter->notified)) {
        return ST_OK;
    }
    enum status st = mean_load(reader, &load, err);
    if (st == ST_OK && prng_double(&reader->prng) < admitter->k * pow(load, admitter->power)) {
        return error_set(err, ST_SATURATED,
                         "request not admitted: the pool's mean load is %.3f of its limits "
                         "(probabilistic-admitter), and the request is sheddable",
                         load);
    }
    return st;
}

static enum status finish_pick(struct trial *trial, enum attempt attempt, struct error *err) {
    const struct pool_shortlist *best = &trial->best;
    struct pool_pick *out = trial->out;
    if (attempt == ATTEMPT_NONE) {
        return no_endpoint_error(trial, err);
    }
    if (attempt == ATTEMPT_SATURATED) {
        return saturated_error(trial->reader->snapshot->spec, err);
    }
    for (size_t i = 0; i < best->n; i++) {
        out->endpoints[i] = best->endpoints[i];
    }
    out->n_endpoints = best->n;
    out->is_list = best->is_list;
    out->picked_by = best->avoided      ? POOL_BY_LAST_RESORT
                     : best->by_profile ? POOL_BY_PROFILE
                                        : POOL_BY_LEAST_REQUESTS;
    out->ticket.endpoint = best->endpoints[0];
    out->ticket.kind = trial->kind;
    out->ticket.number = best->pick_number;
    if (trial->reader->snapshot->spec->handler || trial->reader->snapshot->spec->refuses_uncached) {
        out->n_cached_tokens = pool_prompt_cached_tokens(trial->reader, best->endpoints[0]);
    }
    if (trial->reader->snapshot->spec->flow_control.has_programs) {
        out->ticket.has_program = true;
        out->ticket.n_estimated = trial->request->n_tokens;
        out->ticket.program = flow_hash_id(&trial->reader->pool->flow, trial->request->fairness_id);
        if (trial->request->stage == STAGE_DECODE) {
            pool_begin_turn(trial->reader->pool, &out->ticket);
        }
    }
    pool_prompt_record(trial->reader, trial->request, best->profile, &out->ticket);
    return ST_OK;
}

/* Resolves the subset of a request that will have to wait, before the lock is taken. */
static void prepare_wait(const struct trial *trial) {
    const struct pool_request *request = trial->request;
    bool has_none = trial->chosen && trial->best.n == 0; /* it may wait for one to become ready */
    if (can_wait(trial) && (trial->best.full || has_none || has_waiters_ahead(trial))) {
        request->waiter->subset = request->subset;
        request->waiter->selection = request->selection;
        uint64_t profile = trial->reader->snapshot->spec->handler && trial->profile
                               ? profile_name_hash(trial->profile)
                               : 0;
        if (request->waiter->profile != profile) {
            request->waiter->profile = profile;
            pool_waiter_forget(request->waiter);
        }
        pool_waiter_resolve(trial->reader->snapshot, request->waiter);
    }
}

enum status pool_pick(struct pool_reader *reader, const struct pool_request *request,
                      struct pool_pick *out, struct error *err) {
    struct trial trial;
    enum attempt result = ATTEMPT_AGAIN;
    enum status st = ST_OK;
    bool admitted = false;
    assert(request->n_fallbacks <= PROTOCOL_MAX_FALLBACKS);
    if (request->waiter && request->waiter->displaced) {
        *out = (struct pool_pick){.generation = reader->snapshot->generation};
        pool_dequeue(reader->pool, request->waiter, FLOW_REFUSED);
        return pool_displaced_error(err);
    }
    trial.reader = reader;
    trial.request = request;
    trial.out = out;
    trial.kind = 0;
    trial.is_closed = false;
    trial.n_not_admitted = 0;
    trial.best.n_unfit = 0;
    while (st == ST_OK && result == ATTEMPT_AGAIN) {
        pool_reader_refresh(reader);
        expire_avoidances(reader->pool);
        st = resolve_request(reader, request, out, err);
        if (st == ST_OK && !admitted) {
            st = admit(&trial, err);
            admitted = true;
        }
        if (st == ST_OK) {
            st = find_profile(reader, request, &trial.profile, err);
        }
        if (st == ST_OK) {
            struct str model = out->target.ptr ? out->target : request->model;
            if (request->path_hash != 0) {
                trial.kind = request_kind_of(request->path_hash, model);
                trial.best.n_unfit = pool_list_unfit(reader->pool, trial.kind, trial.best.unfit);
            }
            st = choose_endpoints(&trial, model, err);
        }
        if (st == ST_OK) {
            trial.best.full = trial.best.full || seems_held_by_pool(&trial);
            prepare_wait(&trial);
            result = run_attempt(&trial, &st, err);
        }
    }
    if (st == ST_OK && result == ATTEMPT_SATURATED && can_wait(&trial)) {
        return st;
    }
    if (st == ST_OK && result == ATTEMPT_HELD) { /* one that was notified keeps its slot */
        if (request->waiter && !request->waiter->notified) {
            pool_waiter_forget(request->waiter);
        }
        out->is_held = true;
        return st;
    }
    if (st != ST_OK && request->waiter && request->waiter->notified) {
        pool_dequeue(reader->pool, request->waiter, FLOW_REFUSED);
    }
    if (request->waiter) {
        pool_waiter_forget(request->waiter);
    }
    return st == ST_OK ? finish_pick(&trial, result, err) : st;
}

/* ---- checking a model after the pick --------------------------------------------------------- */

enum status pool_check_picked(struct pool_reader *reader, const struct pool_request *request,
                              const struct pool_ticket *ticket, struct pool_pick *out,
                              struct error *err) {
    const struct pool_spec *spec = pool_reader_refresh(reader)->spec;
    enum status st = resolve_request(reader, request, out, err);
    uint64_t n = ticket->endpoint ? endpoint_in_flight(ticket->endpoint) : 0;
    /* `n` includes this request. */
    bool saturated = pool_spec_is_by_pool(spec)
                         ? pool_seems_saturated_without_one(reader->pool, reader->snapshot)
                         : n > 0 && pool_limit_reached(spec, (double)(n - 1), 0, 0);
    return st == ST_OK && is_shed(spec, out) && saturated ? saturated_error(spec, err) : st;
}

/* ---- explaining ------------------------------------------------------------------------------ */

static int compare_members(const void *a, const void *b) {
    uint32_t left = ((const struct pool_endpoint_explanation *)a)->member;
    uint32_t right = ((const struct pool_endpoint_explanation *)b)->member;
    return left < right ? -1 : left > right;
}

static struct pool_endpoint_explanation *find_explanation(const struct pool_explanation *self,
                                                          uint32_t member) {
    struct pool_endpoint_explanation key = {.member = member};
    return bsearch(&key, self->items, self->n, sizeof(key), compare_members);
}

static void fill_explanation(const struct candidate_set *candidates, uint32_t i,
                             struct pool_endpoint_explanation *out) {
    const struct candidate_columns *columns = candidates->columns;
    *out = (struct pool_endpoint_explanation){.member = columns->member[i],
                                              .known = columns->known[i],
                                              .in_flight = columns->in_flight[i],
                                              .n_waiting = columns->n_waiting[i],
                                              .n_running = columns->n_running[i],
                                              .kv_cache_used = columns->kv_cache_used[i]};
}

static enum status list_candidates(struct pool_explanation *self,
                                   const struct candidate_set *candidates, struct arena *arena,
                                   struct error *err) {
    self->items = arena_calloc(arena, candidates->n, sizeof(*self->items));
    if (!self->items) {
        return error_no_memory(err, "the explanation");
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        struct pool_endpoint_explanation *item = &self->items[self->n++];
        fill_explanation(candidates, i, item);
        item->scores = arena_calloc(arena, self->profile->n_scorers, sizeof(*item->scores));
        if (!item->scores) {
            return error_no_memory(err, "the explanation");
        }
    }
    qsort(self->items, self->n, sizeof(*self->items), compare_members);
    return ST_OK;
}

/* Sets removed_by of the candidates that the filter removes. */
static void run_filter(struct pool_explanation *self, const struct profile_step *step,
                       struct candidate_set *candidates) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->removed_by = step;
    }
    profile_run_filter(step, candidates);
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->removed_by = NULL;
    }
}

/* Records the scorer's scores without its weight. */
static void run_scorer(struct pool_explanation *self, size_t scorer,
                       struct candidate_set *candidates) {
    struct profile_step step = self->profile->scorers[scorer];
    step.weight = 1;
    profile_reset_scores(candidates);
    profile_run_scorer(&step, candidates);
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->scores[scorer] =
            candidates->score[i];
    }
}

static void explain_profile(struct pool_explanation *self, struct candidate_set *candidates) {
    const struct profile *profile = self->profile;
    for (size_t i = 0; i < profile->n_filters; i++) {
        run_filter(self, &profile->filters[i], candidates);
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        run_scorer(self, i, candidates);
    }
    profile_reset_scores(candidates);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        profile_run_scorer(&profile->scorers[i], candidates);
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->score = candidates->score[i];
    }
}

/* Runs the profile's filters and scorers on `candidates`, of which the filters' survivors
 * remain. */
static enum status explain_candidates(struct pool_reader *reader,
                                      const struct pool_request *request,
                                      struct candidate_set *candidates, struct arena *arena,
                                      struct pool_explanation *out, struct error *err) {
    pool_prompt_match(reader, out->profile, request, request->model, candidates);
    out->n = 0;
    enum status st = list_candidates(out, candidates, arena, err);
    if (st == ST_OK) {
        explain_profile(out, candidates);
    }
    return st;
}

/* Without a soft limit's cycles. */
static struct pool_gate request_gate(const struct pool_snapshot *snapshot,
                                     const struct pool_request *request) {
    const struct pool_objective *objective =
        request->objective.ptr ? pool_snapshot_find_objective(snapshot, request->objective) : NULL;
    const struct pool_model_entry *name =
        request->model.ptr ? pool_snapshot_find_name(snapshot, request->model) : NULL;
    enum pool_criticality criticality =
        name && name->model ? name->model->criticality : POOL_STANDARD;
    return pool_gate_of(
        snapshot, objective ? objective->priority : pool_criticality_priority(criticality), 1);
}

/* Leaves out full endpoints as choose_by_profile does. */
enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out, struct error *err) {
    struct candidate_set candidates;
    *out = (struct pool_explanation){.profile = NULL};
    enum status st = find_profile(reader, request, &out->profile, err);
    if (st != ST_OK || !out->profile) {
        return st;
    }
    st = pool_collect_candidates(reader, request, request->model, 0, &candidates, err);
    const struct full_test test = {NULL, request_gate(reader->snapshot, request)};
    bool by_pool = pool_spec_is_by_pool(reader->snapshot->spec);
    uint32_t n_full = st == ST_OK && !by_pool ? count_full_candidates(&candidates, &test) : 0;
    out->full = by_pool ? pool_seems_closed(reader->pool, reader->snapshot, test.gate)
                        : n_full > 0 && n_full == candidates.n;
    if (n_full > 0 && !out->full && reader->snapshot->spec->flow_control.on) {
        remove_full_candidates(&candidates, &test);
        st = explain_candidates(reader, request, &candidates, arena, out, err);
        if (st != ST_OK || candidates.n > 0) {
            return st;
        }
        out->full = true;
        st = pool_collect_candidates(reader, request, request->model, 0, &candidates, err);
    }
    return st == ST_OK ? explain_candidates(reader, request, &candidates, arena, out, err) : st;
}
