/* Choosing by a profile: what the reader knows of the endpoints is brought up to date, and is then
 * the profile's to judge. Without a lock, like choosing within a subset: a pick of another thread
 * at the same moment may not be seen, the next one will be. */
#include "core/event/clock.h"
#include "pick/pool/state.h"

static bool knows_loads(const struct pool_reader *reader) {
    uint64_t loads_ns = atomic_load_explicit(&reader->pool->loads_ns, memory_order_relaxed);
    return loads_ns > 0 && loads_ns > clock_now_ns();
}

/* While nobody has said anything of late the default has nothing to go by but our own counts. */
const struct profile *pool_profile(const struct pool_reader *reader) {
    const struct profile *profile = reader->snapshot->spec->profile;
    if (profile) {
        bool looks = pool_limits_loads(reader->snapshot->spec) && knows_loads(reader);
        return profile_is_fewest(profile) && !looks ? NULL : profile;
    }
    return knows_loads(reader) ? &PROFILE_DEFAULT : NULL;
}

/* ---- candidates ------------------------------------------------------------------------------ */

void pool_add_candidate(const struct pool_view *view, struct choice *choice, uint32_t member) {
    uint32_t place = view->place_of[member];
    if (place < view->n_eligible) {
        choice_columns_copy(choice->columns, choice->n++, &view->columns, place);
    }
}

static bool is_ready(const void *parameters, const struct choice *choice, uint32_t i) {
    const struct pool_view *view = parameters;
    return view->place_of[choice->columns->member[i]] < view->n_ready;
}

/* One that just refused a connection, or was not checked yet, is a candidate only where no other
 * is. */
static void leave_out_avoided(const struct pool_view *view, struct choice *choice) {
    for (uint32_t i = 0; i < choice->n && view->n_ready < view->n_eligible; i++) {
        if (is_ready(view, choice, i)) {
            choice_keep(choice, view, is_ready);
            return;
        }
    }
}

static enum status gather_subset(struct pool_reader *reader, const struct pool_request *request,
                                 struct choice *choice, struct error *err) {
    struct pool_best none = {.choice = choice};
    choice->columns = choice->room;
    choice->place_of = NULL;
    enum status st =
        pool_choose_of_subsets(reader, request->subset, request->selection, &none, err);
    leave_out_avoided(&reader->view, choice);
    return st;
}

enum status pool_gather(struct pool_reader *reader, const struct pool_request *request,
                        struct str model, struct choice *out, struct error *err) {
    const struct pool_view *view = &reader->view;
    uint64_t now_ns = clock_now_ns();
    enum status st = pool_view_follow(&reader->view, reader->snapshot, now_ns, err);
    *out = (struct choice){.snapshot = reader->snapshot,
                           .model = model,
                           .session = request->session,
                           .prefix = &reader->prefix,
                           .headers = request->headers,
                           .dice = &reader->dice,
                           .now_ns = now_ns,
                           .adapters = view->adapters,
                           .columns = &view->columns,
                           .place_of = view->place_of,
                           .score = view->score,
                           .scratch = view->scratch,
                           .room = &view->room,
                           .standing = &reader->view.standing};
    if (st == ST_OK && (request->subset || request->selection)) {
        return gather_subset(reader, request, out, err);
    }
    if (st == ST_OK) {
        out->n = view->n_ready > 0 ? view->n_ready : view->n_eligible;
    }
    return st;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Behind the one that was chosen, the best of the others: two looks at all of them, for a log that
 * somebody reads. */
static void trace(const struct profile *profile, const struct choice *choice, uint32_t chosen,
                  struct pool_trace *out) {
    uint32_t taken[POOL_MOST_TRACED] = {chosen, chosen, chosen};
    out->profile = profile->name;
    out->n_candidates = choice->n;
    for (out->n = 0; out->n < POOL_MOST_TRACED && out->n < choice->n; out->n++) {
        uint32_t best = chosen;
        for (uint32_t i = 0; out->n > 0 && i < choice->n; i++) {
            bool again = i == taken[0] || i == taken[1];
            bool better = best == chosen || choice->score[i] > choice->score[best];
            best = better && !again ? i : best;
        }
        taken[out->n] = best;
        out->first[out->n].endpoint = choice_member(choice, best)->endpoint;
        out->first[out->n].score = choice->score[best];
    }
}

/* The picker's choices, the first one first. */
static void pick(const struct profile *profile, const struct pool_request *request,
                 struct choice *choice, struct pool_best *best) {
    best->by_profile = true;
    while (choice->n > 0) {
        uint32_t place = profile_pick(profile, choice, (uint32_t)best->n);
        if (request->trace && best->n == 0) {
            trace(profile, choice, place, request->trace);
        }
        best->endpoints[best->n++] = choice_member(choice, place)->endpoint;
        if (best->n == best->most) {
            return;
        }
        choice_drop(choice, place);
    }
}

/* ---- who is full ----------------------------------------------------------------------------- */

/* May any of them be? Vector loops, where the exact look is a walk over endpoints. */
static bool may_be_full(const struct choice *choice) {
    const struct pool_spec *spec = choice->snapshot->spec;
    const struct choice_columns *columns = choice->columns;
    return (spec->max_in_flight > 0 &&
            (double)choice_greatest(choice, columns->in_flight) >= (double)spec->max_in_flight) ||
           (spec->queue_depth > 0 &&
            (double)choice_greatest(choice, columns->n_waiting) >= (double)spec->queue_depth) ||
           (spec->kv_cache > 0 &&
            (double)choice_greatest(choice, columns->kv_cache_used) >= spec->kv_cache);
}

static bool is_not_full(const void *parameters, const struct choice *choice, uint32_t i) {
    return !pool_is_full(choice->snapshot, choice->columns->member[i], parameters, choice->now_ns);
}

uint32_t pool_count_full(const struct choice *choice, const struct pool_waiter *waiter) {
    uint32_t n = 0;
    if (choice->n > 0 && may_be_full(choice)) {
        for (uint32_t i = 0; i < choice->n; i++) {
            n += !is_not_full(waiter, choice, i);
        }
    }
    return n;
}

void pool_leave_out_full(struct choice *choice, const struct pool_waiter *waiter) {
    choice_keep(choice, waiter, is_not_full);
}

static void run(const struct profile *profile, const struct pool_request *request,
                struct choice *choice, struct pool_best *best) {
    uint32_t n = choice->n;
    profile_judge(profile, choice);
    pick(profile, request, choice, best);
    best->n_filtered = best->n == 0 ? n : 0;
}

/* Those that are full are left out where there are others and requests can wait; should the filters
 * then leave none, they are looked at again: it may be one of them that is waited for. */
enum status pool_choose_by_profile(struct pool_reader *reader, const struct profile *profile,
                                   const struct pool_request *request, struct str model,
                                   struct pool_best *best, struct error *err) {
    bool leave_out = reader->snapshot->spec->flow_control.on;
    struct choice choice;
    enum status st = pool_gather(reader, request, model, &choice, err);
    if (st != ST_OK) {
        return st;
    }
    pool_prompt_match(reader, profile, request, model);
    uint32_t n = choice.n, n_full = best->asks_full ? pool_count_full(&choice, request->waiter) : 0;
    best->full = n > 0 && n_full == n;
    if (leave_out && n_full > 0 && !best->full) {
        pool_leave_out_full(&choice, request->waiter);
        run(profile, request, &choice, best);
        if (best->n > 0) {
            return ST_OK;
        }
        best->full = true;
        st = pool_gather(reader, request, model, &choice, err);
    }
    if (st == ST_OK) {
        run(profile, request, &choice, best);
    }
    return st;
}
