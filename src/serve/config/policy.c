/* The policies of a configuration, laid out by level, and their application to a request. A
 * request's own words count only where the policy of its level lets them: `timeout` may shorten a
 * timeout, never lengthen it. */
#include "serve/config/policy.h"

enum { NS_PER_US = 1000 };

/* `us` microseconds from `now_ns` on, or never. */
static uint64_t after(uint64_t now_ns, uint64_t us) {
    uint64_t ns;
    bool ever = !__builtin_mul_overflow(us, (uint64_t)NS_PER_US, &ns) &&
                !__builtin_add_overflow(ns, now_ns, &ns);
    return ever ? ns : UINT64_MAX;
}

enum status policy_make(struct arena *arena, const struct model_config *config, uint64_t limit,
                        struct policy *out, struct error *err) {
    size_t n = config->priority_levels > 0 ? (size_t)config->priority_levels : 1;
    struct model_queue_policy *levels = arena_calloc(arena, n, sizeof(*levels));
    if (!levels) {
        return error_set(err, ST_NO_MEMORY, "out of memory for %zu levels of priority", n);
    }
    for (size_t i = 0; i < n; i++) {
        levels[i] = config->queue;
    }
    for (size_t i = 0; config->sequences.strategy != SEQUENCES_NONE && i < n; i++) {
        levels[i].allow_override = true; /* where there are sequences `timeout` always counts */
    }
    for (size_t i = 0; i < config->n_levels; i++) {
        levels[config->levels[i].level - 1] = config->levels[i].policy;
    }
    *out = (struct policy){
        .levels = levels,
        .n_levels = n,
        .ordinary = config->priority_levels > 0 ? (size_t)config->default_priority - 1 : 0,
        .delay_ns = after(0, config->max_queue_delay_us),
        .limit = limit,
    };
    return ST_OK;
}

/* Left alone when it is not there. */
static enum status read_param(struct params params, const char *name, uint64_t *out,
                              struct error *err) {
    const struct param *param = params_find(params, name);
    if (!param) {
        return ST_OK;
    }
    if (param->kind == PARAM_INT64 && param->int64 >= 0) {
        *out = (uint64_t)param->int64;
    } else if (param->kind == PARAM_UINT64) {
        *out = param->uint64;
    } else {
        return error_set(err, ST_BAD_FIELD,
                         "parameter \"%s\" must be a whole number that is not negative", name);
    }
    return ST_OK;
}

/* How long it waits for company: no longer than half of what it waits at all, so that an instance
 * that is idle has the other half to begin with it. */
static uint64_t linger(const struct policy *policy, const struct patience *patience,
                       uint64_t now_ns) {
    uint64_t most = policy->delay_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + policy->delay_ns;
    uint64_t half = now_ns + (patience_next_ns(patience) - now_ns) / 2;
    return half < most ? half : most;
}

enum status policy_apply(const struct policy *policy, const struct infer_request *request,
                         uint64_t now_ns, struct patience *out, struct error *err) {
    uint64_t priority = 0, asked_us = 0;
    *out = (struct patience){.level = policy->ordinary,
                             .yields_ns = UINT64_MAX,
                             .expires_ns =
                                 request->deadline_ns > 0 ? request->deadline_ns : UINT64_MAX};
    if (request->params.n > 0 && !request->params_are_the_models) {
        enum status st = read_param(request->params, "priority", &priority, err);
        if (st == ST_OK) {
            st = read_param(request->params, "timeout", &asked_us, err);
        }
        if (st != ST_OK) {
            return st;
        }
    }
    if (patience_is_over(out, now_ns)) {
        return error_set(err, ST_DEADLINE_EXCEEDED,
                         "the request's deadline had passed before it could be queued");
    }
    /* A priority that the model has not is the ordinary one, as in the reference server. */
    if (priority > 0 && priority <= policy->n_levels) {
        out->level = (size_t)priority - 1;
    }
    const struct model_queue_policy *level = &policy->levels[out->level];
    uint64_t timeout_us = level->timeout_us;
    if (level->allow_override && asked_us > 0 && (timeout_us == 0 || asked_us < timeout_us)) {
        timeout_us = asked_us;
    }
    uint64_t over_ns = timeout_us > 0 ? after(now_ns, timeout_us) : UINT64_MAX;
    if (level->delays) {
        out->yields_ns = over_ns;
    } else if (over_ns < out->expires_ns) {
        out->expires_ns = over_ns;
    }
    out->linger_ns = linger(policy, out, now_ns);
    return ST_OK;
}
