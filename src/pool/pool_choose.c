/* Choosing by a profile: every endpoint that may be picked is read once, and what was read is the
 * profile's to judge. Without a lock, like choosing within a subset: a pick of another thread at
 * the same moment may not be seen, the next one will be. */
#include <stdlib.h>

#include "loop/clock.h"
#include "pool/pool_state.h"

/* While nobody has said anything of late the default has nothing to go by but our own counts. */
const struct profile *pool_profile(const struct pool_reader *reader) {
    const struct profile *profile = reader->snapshot->spec->profile;
    if (profile) {
        return profile_is_fewest(profile) ? NULL : profile;
    }
    uint64_t loads_ns = atomic_load_explicit(&reader->pool->loads_ns, memory_order_relaxed);
    return loads_ns > 0 && loads_ns > clock_now_ns() ? &PROFILE_DEFAULT : NULL;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static void note_least(struct choice *choice, uint32_t in_flight) {
    if (in_flight < choice->least_in_flight) {
        choice->least_in_flight = in_flight;
    }
}

/* Written in place: this runs for every endpoint at every pick. */
void pool_add_candidate(struct choice *choice, uint32_t member) {
    const struct pool_snapshot *snapshot = choice->snapshot;
    const struct endpoint *endpoint = snapshot->members[member].endpoint;
    if (!endpoint_is_eligible(endpoint)) {
        return;
    }
    uint32_t in_flight = endpoint_in_flight(endpoint);
    struct load_now load = load_look(&snapshot->loads[member], choice->now_ns, in_flight);
    note_least(choice, in_flight);
    struct candidate *candidate = &choice->candidates[choice->n++];
    candidate->member = member;
    candidate->in_flight = in_flight;
    candidate->known = load.known;
    candidate->n_waiting = load.known & LOAD_WAITING ? load.n_waiting : in_flight;
    candidate->n_running = load.known & LOAD_RUNNING ? load.n_running : in_flight;
    candidate->kv_cache_used = load.kv_cache_used;
    candidate->score = 0;
}

static enum status make_room(struct pool_reader *reader, struct error *err) {
    uint32_t n = reader->snapshot->n_members;
    if (reader->candidates_cap < n) {
        struct candidate *candidates = calloc(n, sizeof(*candidates));
        if (!candidates) {
            return error_set(err, ST_NO_MEMORY, "no memory to choose from %u endpoints", n);
        }
        free(reader->candidates);
        reader->candidates = candidates;
        reader->candidates_cap = n;
    }
    return ST_OK;
}

/* One that just refused a connection, or was not checked yet, is a candidate only where no other
 * is. */
static void leave_out_avoided(struct choice *choice) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < choice->n; i++) {
        if (!endpoint_is_avoided(choice_member(choice, &choice->candidates[i])->endpoint)) {
            choice_swap(choice, n++, i);
        }
    }
    choice->n = n > 0 ? n : choice->n;
    choice->least_in_flight = UINT32_MAX;
    for (uint32_t i = 0; i < choice->n; i++) {
        note_least(choice, choice->candidates[i].in_flight);
    }
}

enum status pool_gather(struct pool_reader *reader, const struct pool_request *request,
                        struct str model, struct choice *out, struct error *err) {
    enum status st = make_room(reader, err);
    *out = (struct choice){.snapshot = reader->snapshot,
                           .model = model,
                           .session = request->session,
                           .dice = &reader->dice,
                           .now_ns = clock_now_ns(),
                           .least_in_flight = UINT32_MAX,
                           .candidates = reader->candidates};
    if (st == ST_OK && (request->subset || request->selection)) {
        struct pool_best none = {.choice = out};
        st = pool_choose_of_subsets(reader, request->subset, request->selection, &none, err);
    } else if (st == ST_OK) {
        for (uint32_t i = 0; i < reader->snapshot->n_members; i++) {
            pool_add_candidate(out, i);
        }
    }
    if (atomic_load_explicit(&reader->pool->forgive_ns, memory_order_relaxed) != UINT64_MAX ||
        atomic_load_explicit(&reader->pool->n_unchecked, memory_order_relaxed) > 0) {
        leave_out_avoided(out);
    }
    return st;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Behind the one that was chosen, the best of the others: two looks at all of them, for a log that
 * somebody reads. */
static void trace(const struct profile *profile, const struct choice *choice,
                  struct pool_trace *out) {
    uint32_t taken[POOL_MOST_TRACED] = {0};
    out->profile = profile->name;
    out->n_candidates = choice->n;
    for (out->n = 0; out->n < POOL_MOST_TRACED && out->n < choice->n; out->n++) {
        uint32_t best = 0;
        for (uint32_t i = 1; out->n > 0 && i < choice->n; i++) {
            bool again = out->n > 1 && taken[1] == i;
            bool better = best == 0 || choice->candidates[i].score > choice->candidates[best].score;
            best = better && !again ? i : best;
        }
        taken[out->n] = best;
        out->first[out->n].endpoint = choice_member(choice, &choice->candidates[best])->endpoint;
        out->first[out->n].score = choice->candidates[best].score;
    }
}

enum status pool_choose_by_profile(struct pool_reader *reader, const struct profile *profile,
                                   const struct pool_request *request, struct str model,
                                   struct pool_best *best, struct error *err) {
    struct choice choice;
    enum status st = pool_gather(reader, request, model, &choice, err);
    if (st != ST_OK) {
        return st;
    }
    uint32_t n = choice.n;
    best->least_in_flight = choice.least_in_flight;
    best->n = profile_run(profile, &choice, (uint32_t)best->most);
    best->n_filtered = best->n == 0 ? n : 0;
    best->by_profile = true;
    if (request->trace && best->n > 0) {
        trace(profile, &choice, request->trace);
    }
    for (size_t i = 0; i < best->n; i++) {
        best->endpoints[i] = choice_member(&choice, &choice.candidates[i])->endpoint;
    }
    return ST_OK;
}
