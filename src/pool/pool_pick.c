/* The choice. What the request means is read from the snapshot without a lock; then, under the
 * pool's lock, the best is taken and its count raised. Should the pool have become another in
 * between, all of it is done again: a pick is always of the pool as it is at that moment. */
#include <assert.h>

#include "loop/clock.h"
#include "pool/pool_state.h"

/* ---- the model ------------------------------------------------------------------------------- */

/* Returns: ptr NULL when there is no target with a weight. */
static struct str roll_target(struct dice *dice, struct pool_targets targets) {
    uint64_t total = 0;
    for (size_t i = 0; i < targets.n; i++) {
        total += targets.items[i].weight;
    }
    uint64_t rolled = total > 0 ? dice_roll(dice) % total : 0;
    for (size_t i = 0; i < targets.n; i++) {
        if (rolled < targets.items[i].weight) {
            return targets.items[i].model;
        }
        rolled -= targets.items[i].weight;
    }
    return str_make(NULL, 0);
}

/* A model's own targets, unless there is a rewrite for its name. */
static struct pool_targets targets_of(const struct pool_snapshot *snapshot,
                                      const struct pool_name *name) {
    const struct pool_rewrite *rewrite = name ? name->rewrite : snapshot->rest;
    if (rewrite) {
        return rewrite->targets;
    }
    return name && name->model ? name->model->targets : (struct pool_targets){NULL, 0};
}

/* "Matching An InferenceModel". */
static enum status resolve_model(struct pool_reader *reader, struct str model,
                                 struct pool_pick *out, struct error *err) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    const struct pool_name *name = pool_snapshot_name(snapshot, model);
    if (!name && !snapshot->rest && snapshot->spec->strict_models) {
        return error_set(err, ST_UNKNOWN_MODEL,
                         "no model is called \"%.*s\" (models: in the picker's configuration "
                         "lists those that are)",
                         STR_ARG(model));
    }
    out->known_model = name != NULL;
    out->criticality = name && name->model ? name->model->criticality : POOL_STANDARD;
    struct pool_targets targets = targets_of(snapshot, name);
    out->target = roll_target(&reader->dice, targets);
    if (targets.n > 0 && !out->target.ptr) {
        return error_set(err, ST_UNKNOWN_MODEL,
                         "the model \"%.*s\" has no target with a weight above 0", STR_ARG(model));
    }
    return ST_OK;
}

static enum status resolve(struct pool_reader *reader, const struct pool_request *request,
                           struct pool_pick *out, struct error *err) {
    *out = (struct pool_pick){.generation = reader->snapshot->generation};
    enum status st = request->model.ptr ? resolve_model(reader, request->model, out, err) : ST_OK;
    const struct pool_objective *objective =
        request->objective.ptr ? pool_snapshot_objective(reader->snapshot, request->objective)
                               : NULL;
    out->priority = objective ? objective->priority : 0;
    out->sheddable = objective ? objective->priority < 0 : out->criticality == POOL_SHEDDABLE;
    return st;
}

/* ---- the endpoint ---------------------------------------------------------------------------- */

/* Those whose time of being avoided is over count again. Without any, this is a load. */
static void forgive(struct pool *pool) {
    uint64_t due_ns = atomic_load_explicit(&pool->forgive_ns, memory_order_relaxed);
    uint64_t now_ns = due_ns < UINT64_MAX ? clock_now_ns() : 0;
    if (due_ns <= now_ns) {
        lock_take(&pool->lock);
        endpoint_forgive_due(pool, now_ns);
        lock_drop(&pool->lock);
    }
}

/* Of the whole pool. */
static void choose_of_all(struct pool_reader *reader, struct pool_best *best) {
    struct ranked *ranked[POOL_MOST_PICKED];
    best->n = ranking_best(&reader->pool->ranking, &reader->dice, best->most, ranked);
    for (size_t i = 0; i < best->n; i++) {
        best->endpoints[i] = (struct endpoint *)(void *)ranked[i];
    }
}

/* Without the lock, where that can be done. `*chosen`: it has been. */
static enum status choose(struct pool_reader *reader, const struct pool_request *request,
                          struct str model, struct pool_best *best, bool *chosen,
                          struct error *err) {
    const struct profile *profile = pool_profile(reader);
    best->profile = profile;
    *chosen = profile || request->subset || request->selection;
    if (!*chosen) {
        return ST_OK;
    }
    return profile ? pool_choose_by_profile(reader, profile, request, model, best, err)
                   : pool_choose_of_subsets(reader, request->subset, request->selection, best, err);
}

/* The first is the one with the fewest, unless a profile chose it. */
static bool is_saturated(const struct pool_spec *spec, const struct pool_best *best) {
    uint32_t in_flight = endpoint_in_flight(best->endpoints[0]);
    uint32_t least = best->least_in_flight < in_flight ? best->least_in_flight : in_flight;
    return spec->max_in_flight > 0 && least >= spec->max_in_flight;
}

/* What a try came to. */
enum attempt { ATTEMPT_AGAIN, ATTEMPT_PICKED, ATTEMPT_NONE, ATTEMPT_SATURATED };

/* Under the lock. `best` is `chosen` already, or empty and to be of the whole pool. */
static enum attempt take(struct pool_reader *reader, bool chosen, bool sheddable,
                         struct pool_best *best) {
    struct pool *pool = reader->pool;
    if (pool->snapshot != reader->snapshot) {
        return ATTEMPT_AGAIN;
    }
    if (!chosen) {
        choose_of_all(reader, best);
    }
    if (best->n == 0) {
        return ATTEMPT_NONE;
    }
    if (!endpoint_is_eligible(best->endpoints[0])) {
        return ATTEMPT_AGAIN; /* it was, when it was chosen */
    }
    if (sheddable && is_saturated(reader->snapshot->spec, best)) {
        return ATTEMPT_SATURATED;
    }
    struct endpoint *picked = best->endpoints[0];
    best->avoided = endpoint_is_avoided(picked);
    endpoint_raise(pool, picked);
    atomic_store_explicit(&picked->n_picked, endpoint_n_picked(picked) + 1, memory_order_relaxed);
    return ATTEMPT_PICKED;
}

static enum status say_none(struct pool_reader *reader, const struct pool_request *request,
                            struct error *err) {
    struct pool_numbers numbers;
    pool_read(reader->pool, &numbers);
    if (!request->subset && !request->selection) {
        return error_set(err, ST_NO_ENDPOINT, "none of the pool's %u endpoints is ready",
                         numbers.n_endpoints);
    }
    const struct subset *subset = request->subset ? request->subset : request->selection;
    if (subset->n + subset->n_unreadable == 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "the list of endpoints that the request may be sent to is empty; the pool "
                         "has %u, of which %u are ready",
                         numbers.n_endpoints, numbers.n_ready);
    }
    return error_set(err, ST_NO_ENDPOINT,
                     "of the %zu endpoints that the request may be sent to (%zu of them cannot be "
                     "read) none is in the pool and ready; the pool has %u, of which %u are ready",
                     subset->n + subset->n_unreadable, subset->n_unreadable, numbers.n_endpoints,
                     numbers.n_ready);
}

static enum status say_saturated(const struct pool_spec *spec, struct error *err) {
    return error_set(err, ST_SATURATED,
                     "every endpoint has %llu requests in flight or more "
                     "(max_in_flight in the picker's configuration), and this request is "
                     "sheddable",
                     (unsigned long long)spec->max_in_flight);
}

static enum status say_filtered(uint32_t n, struct error *err) {
    return error_set(err, ST_NO_ENDPOINT,
                     "the filters of the picker's profile leave none of the %u endpoints that are "
                     "ready and may take the request",
                     n);
}

static enum status finish(struct pool_reader *reader, const struct pool_request *request,
                          enum attempt attempt, const struct pool_best *best, struct pool_pick *out,
                          struct error *err) {
    if (attempt == ATTEMPT_NONE) {
        return best->n_filtered > 0 ? say_filtered(best->n_filtered, err)
                                    : say_none(reader, request, err);
    }
    if (attempt == ATTEMPT_SATURATED) {
        return say_saturated(reader->snapshot->spec, err);
    }
    for (size_t i = 0; i < best->n; i++) {
        out->endpoints[i] = best->endpoints[i];
    }
    out->n_endpoints = best->n;
    out->pool = reader->snapshot->spec->name;
    out->way = best->avoided      ? POOL_BY_LAST_CHOICE
               : best->by_profile ? POOL_BY_PROFILE
                                  : POOL_BY_FEWEST;
    out->ticket.endpoint = best->endpoints[0];
    pool_prompt_picked(reader, request, best->profile, &out->ticket);
    return ST_OK;
}

enum status pool_pick(struct pool_reader *reader, const struct pool_request *request,
                      struct pool_pick *out, struct error *err) {
    struct pool_best best;
    enum attempt attempt;
    bool chosen = false;
    assert(request->n_fallbacks <= PROTOCOL_MOST_FALLBACKS);
    do {
        pool_look(reader);
        forgive(reader->pool);
        enum status st = resolve(reader, request, out, err);
        best.n = 0;
        best.most = 1 + request->n_fallbacks;
        best.choice = NULL;
        best.by_profile = false;
        best.n_filtered = 0;
        best.least_in_flight = UINT32_MAX;
        best.asks_least = out->sheddable;
        if (st == ST_OK) {
            struct str model = out->target.ptr ? out->target : request->model;
            st = choose(reader, request, model, &best, &chosen, err);
        }
        if (st != ST_OK) {
            return st;
        }
        lock_take(&reader->pool->lock);
        attempt = take(reader, chosen, out->sheddable, &best);
        lock_drop(&reader->pool->lock);
    } while (attempt == ATTEMPT_AGAIN);
    return finish(reader, request, attempt, &best, out, err);
}

/* ---- a look without a pick ------------------------------------------------------------------- */

enum status pool_check(struct pool_reader *reader, const struct pool_request *request,
                       const struct pool_ticket *ticket, struct pool_pick *out, struct error *err) {
    const struct pool_spec *spec = pool_look(reader)->spec;
    enum status st = resolve(reader, request, out, err);
    uint64_t n = ticket->endpoint ? endpoint_in_flight(ticket->endpoint) : 0;
    bool saturated = spec->max_in_flight > 0 && n > spec->max_in_flight; /* n: this one, too */
    return st == ST_OK && out->sheddable && saturated ? say_saturated(spec, err) : st;
}
