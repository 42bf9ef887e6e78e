/* What the host policies of its groups mean for a version. */
#include "serve/scheduler/placement.h"

#include "core/base/log.h"
#include "serve/scheduler/version.h"

/* ---- groups of instances --------------------------------------------------------------------- */

static size_t count_groups(const struct model_version *version) {
    return version->config.n_groups > 0 ? version->config.n_groups : 1;
}

static struct model_instance_group group_at(const struct model_version *version, size_t i) {
    return version->config.n_groups > 0
               ? version->config.groups[i]
               : (struct model_instance_group){.count = version->n_instances,
                                               .host_policy = DEFAULT_HOST_POLICY};
}

static const struct host_policy *policy_at(const struct model_version *version, size_t i) {
    return host_policies_find(version->placement.policies, group_at(version, i).host_policy);
}

const struct host_policy *placement_policy_of(const struct model_version *version, uint32_t index) {
    uint64_t first = 0;
    for (size_t i = 0; i < count_groups(version) && version->placement.any; i++) {
        first += group_at(version, i).count;
        if (index < first) {
            return policy_at(version, i);
        }
    }
    return NULL;
}

/* ---- policies -------------------------------------------------------------------------------- */

/* Triton ignores such names, so they don't fail the model. */
static void report_unknown(const struct model_version *version) {
    for (size_t i = 0; i < version->config.n_groups; i++) {
        if (version->config.groups[i].names_policy && !policy_at(version, i)) {
            log_event(LOG_WARNING, "host_policy has no effect: no --host-policy has its name",
                      LOG_STR("model", version->config.name),
                      LOG_STR("policy", version->config.groups[i].host_policy));
        }
    }
}

/* A policy that lists more CPUs than the machine has is applied, as by Triton. */
static void report_missing_cpus(const struct model_version *version) {
    for (size_t i = 0; i < count_groups(version); i++) {
        const struct host_policy *policy = policy_at(version, i);
        unsigned usable = policy ? host_policy_count_cpus(policy, &version->placement.loader) : 0;
        if (usable > 0 && usable < (unsigned)CPU_COUNT(&policy->cpus)) {
            log_event(LOG_WARNING, "host policy lists CPUs that this process may not use",
                      LOG_STR("model", version->config.name), LOG_STR("policy", policy->name),
                      LOG_U64("usable_cpus", usable));
        }
    }
}

/* An ensemble has no instances. */
void placement_init(struct model_version *version, const struct host_policies *policies) {
    static const struct host_policies none = {0};
    static const struct host_policy anywhere = {0};
    struct version_placement *placement = &version->placement;
    *placement = (struct version_placement){.policies = policies ? policies : &none};
    if (version->config.ensemble.n_steps > 0) {
        return;
    }
    report_unknown(version);
    for (size_t i = 0; i < count_groups(version); i++) {
        const struct host_policy *policy = policy_at(version, i);
        placement->any = placement->any || policy;
        policy = policy ? policy : &anywhere;
        if (i == 0) {
            placement->all = *policy;
        } else {
            host_policy_join(&placement->all, policy);
        }
    }
    if (placement->any) {
        thread_placement_read(&placement->loader);
        report_missing_cpus(version);
    }
}

/* Instances of one policy share its CPUs. All instances may share one session, so the policy with
 * the fewest CPUs for each instance decides. */
uint32_t placement_count_threads(const struct model_version *version, unsigned usable) {
    uint64_t least = usable / version->n_instances;
    for (size_t i = 0; i < count_groups(version) && version->placement.any; i++) {
        const struct host_policy *policy = policy_at(version, i);
        uint64_t n_alike = group_at(version, i).count;
        if (!policy || !policy->has_cpus) {
            continue;
        }
        for (size_t j = 0; j < count_groups(version); j++) {
            n_alike += j != i && policy_at(version, j) == policy ? group_at(version, j).count : 0;
        }
        uint64_t own = host_policy_count_cpus(policy, &version->placement.loader) / n_alike;
        least = own < least ? own : least;
    }
    return least > 0 ? (uint32_t)least : 1;
}

/* ---- placing the loading thread -------------------------------------------------------------- */

enum status placement_enter(struct model_version *version, const struct host_policy *policy,
                            struct error *err) {
    if (!version->placement.any ||
        thread_placement_apply(&version->placement.loader, policy, err) == ST_OK) {
        return ST_OK;
    }
    return policy ? error_prefix(err, "host policy %.*s", STR_ARG(policy->name)) : err->status;
}

enum status placement_enter_all(struct model_version *version, struct error *err) {
    return placement_enter(version, &version->placement.all, err);
}

void placement_leave(struct model_version *version) {
    if (version->placement.any) {
        thread_placement_restore(&version->placement.loader);
    }
}
