/* What a request means: the model that it is sent on as, and how much it matters. Read from the
 * snapshot without a lock. */
#include "pick/pool/state.h"

/* Returns: ptr NULL when there is no target with a weight. */
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

/* A model's own targets, unless there is a rewrite for its name. */
static struct pool_targets targets_of(const struct pool_snapshot *snapshot,
                                      const struct pool_model_entry *name) {
    const struct pool_rewrite *rewrite = name ? name->rewrite : snapshot->default_rewrite;
    if (rewrite) {
        return rewrite->targets;
    }
    return name && name->model ? name->model->targets : (struct pool_targets){NULL, 0};
}

/* "Matching An InferenceModel". */
static enum status resolve_model(struct pool_reader *reader, struct str model,
                                 struct pool_pick *out, struct error *err) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    const struct pool_model_entry *name = pool_snapshot_find_name(snapshot, model);
    if (!name && !snapshot->default_rewrite && snapshot->spec->strict_models) {
        return error_set(err, ST_UNKNOWN_MODEL,
                         "no model is called \"%.*s\" (models: in the picker's configuration "
                         "lists those that are)",
                         STR_ARG(model));
    }
    out->known_model = name != NULL;
    out->criticality = name && name->model ? name->model->criticality : POOL_STANDARD;
    struct pool_targets targets = targets_of(snapshot, name);
    out->target = pick_weighted_target(&reader->prng, targets);
    if (targets.n > 0 && !out->target.ptr) {
        return error_set(err, ST_UNKNOWN_MODEL,
                         "the model \"%.*s\" has no target with a weight above 0", STR_ARG(model));
    }
    return ST_OK;
}

static int64_t priority_of(enum pool_criticality criticality) {
    static const int64_t priorities[] = {[POOL_STANDARD] = POOL_PRIORITY_STANDARD,
                                         [POOL_CRITICAL] = POOL_PRIORITY_CRITICAL,
                                         [POOL_SHEDDABLE] = POOL_PRIORITY_SHEDDABLE};
    return priorities[criticality];
}

enum status pool_resolve(struct pool_reader *reader, const struct pool_request *request,
                         struct pool_pick *out, struct error *err) {
    *out = (struct pool_pick){.generation = reader->snapshot->generation};
    enum status st = request->model.ptr ? resolve_model(reader, request->model, out, err) : ST_OK;
    const struct pool_objective *objective =
        request->objective.ptr ? pool_snapshot_find_objective(reader->snapshot, request->objective)
                               : NULL;
    out->priority = objective ? objective->priority : priority_of(out->criticality);
    out->sheddable = objective ? objective->priority < 0 : out->criticality == POOL_SHEDDABLE;
    return st;
}
