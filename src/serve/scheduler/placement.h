/* Where the instances of a version run: each on the CPUs, and with memory of the NUMA node, of the
 * host policy that its instance_group names (--host-policy). The thread that loads the version has
 * the placement of what it opens, so that the threads and processes that it starts inherit it. */
#ifndef SLUICE_SERVE_SCHEDULER_PLACEMENT_H
#define SLUICE_SERVE_SCHEDULER_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/os/host_policy.h"

struct model_version;

struct version_placement {
    const struct host_policies *policies; /* NULL: none */
    bool any;                             /* an instance has one */
    struct host_policy all;               /* for what all instances share */
    struct thread_placement loader;       /* of the loading thread, before */
};

/* Looks the policies of the configuration's instances up. Before the other functions. */
void placement_init(struct model_version *version, const struct host_policies *policies);
/* Returns: NULL: the instance may run anywhere. */
const struct host_policy *placement_policy_of(const struct model_version *version, uint32_t index);
/* Returns: how many threads an execution may have, of `usable` CPUs; at least 1. */
uint32_t placement_count_threads(const struct model_version *version, unsigned usable);

/* Places the calling thread as the policy says; placement_enter_all: as all instances may be
 * placed.
 * Returns: as thread_placement_apply. Thread: the one that called placement_init. */
enum status placement_enter(struct model_version *version, const struct host_policy *policy,
                            struct error *err) SLUICE_MUST_USE;
enum status placement_enter_all(struct model_version *version, struct error *err) SLUICE_MUST_USE;
/* Places the calling thread as it was before. */
void placement_leave(struct model_version *version);

#endif
