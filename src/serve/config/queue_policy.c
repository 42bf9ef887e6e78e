/* The queue policies of a configuration by priority level, and their application to a request. A
 * request's own parameters count only where the policy of its level allows it: `timeout` may
 * shorten a timeout, never lengthen it. */
#include "serve/config/queue_policy.h"

enum { NS_PER_US = 1000 };

/* Returns: `us` microseconds after `now_ns`; UINT64_MAX for no limit. */
static uint64_t add_us(uint64_t now_ns, uint64_t us) {
    uint64_t ns;
    bool ever = !__builtin_mul_overflow(us, (uint64_t)NS_PER_US, &ns) &&
                !__builtin_add_overflow(ns, now_ns, &ns);
    return ever ? ns : UINT64_MAX;
}

enum status queue_policy_init(struct arena *arena, const struct model_config *config,
                              uint64_t limit, struct queue_policy *out, struct error *err) {
    size_t n = config->priority_levels > 0 ? (size_t)config->priority_levels : 1;
    struct model_queue_policy *levels = arena_calloc(arena, n, sizeof(*levels));
    if (!levels) {
        return error_no_memory(err, "%zu levels of priority", n);
    }
    for (size_t i = 0; i < n; i++) {
        levels[i] = config->queue;
    }
    for (size_t i = 0; config->sequences.strategy != SEQUENCES_NONE && i < n; i++) {
        levels[i].allow_override = true; /* with sequence batching, `timeout` always applies */
    }
    for (size_t i = 0; i < config->n_levels; i++) {
        levels[config->levels[i].level - 1] = config->levels[i].policy;
    }
    *out = (struct queue_policy){
        .levels = levels,
        .n_levels = n,
        .default_level = config->priority_levels > 0 ? (size_t)config->default_priority - 1 : 0,
        .max_queue_delay_ns = add_us(0, config->max_queue_delay_us),
        .limit = limit,
    };
    return ST_OK;
}

/* Leaves *out unchanged when the parameter is absent. */
static enum status read_number_param(struct params params, const char *name, uint64_t *out,
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

/* The batch delay is at most half of a queue timeout that refuses the request, so that an idle
 * instance still has time to start it. */
static uint64_t batch_wait_end(const struct queue_policy *policy,
                               const struct queue_deadline *queue_deadline, uint64_t now_ns) {
    uint64_t most = policy->max_queue_delay_ns > UINT64_MAX - now_ns
                        ? UINT64_MAX
                        : now_ns + policy->max_queue_delay_ns;
    uint64_t half = now_ns + (queue_deadline->expires_ns - now_ns) / 2;
    return half < most ? half : most;
}

enum status queue_policy_apply(const struct queue_policy *policy,
                               const struct infer_request *request, uint64_t now_ns,
                               struct queue_deadline *out, struct error *err) {
    uint64_t priority = 0, asked_us = 0;
    *out = (struct queue_deadline){.level = policy->default_level,
                                   .deprioritize_ns = UINT64_MAX,
                                   .expires_ns = request->deadline_ns > 0 ? request->deadline_ns
                                                                          : UINT64_MAX};
    if (request->params.n > 0 && !request->params_are_opaque &&
        (read_number_param(request->params, "priority", &priority, err) != ST_OK ||
         read_number_param(request->params, "timeout", &asked_us, err) != ST_OK)) {
        return err->status;
    }
    if (queue_deadline_passed(out, now_ns)) {
        return error_set(err, ST_DEADLINE_EXCEEDED,
                         "the request's deadline had passed before it could be queued");
    }
    /* A priority level that the model lacks means the default level, as in Triton. */
    if (priority > 0 && priority <= policy->n_levels) {
        out->level = (size_t)priority - 1;
    }
    const struct model_queue_policy *level = &policy->levels[out->level];
    uint64_t timeout_us = level->timeout_us;
    if (level->allow_override && asked_us > 0 && (timeout_us == 0 || asked_us < timeout_us)) {
        timeout_us = asked_us;
    }
    uint64_t over_ns = timeout_us > 0 ? add_us(now_ns, timeout_us) : UINT64_MAX;
    if (level->delay_on_timeout) {
        out->deprioritize_ns = over_ns;
    } else if (over_ns < out->expires_ns) {
        out->expires_ns = over_ns;
    }
    out->batch_wait_until_ns = batch_wait_end(policy, out, now_ns);
    return ST_OK;
}
