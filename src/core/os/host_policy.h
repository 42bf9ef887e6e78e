/* Host policies: named sets of CPUs, and NUMA nodes, that threads are bound to. A thread inherits
 * the placement of the thread that starts it, and so does a process. */
#ifndef SLUICE_CORE_OS_HOST_POLICY_H
#define SLUICE_CORE_OS_HOST_POLICY_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum { NUMA_NODES_MAX = 1024 };

/* Without a field's `has_`, a policy does not change it. */
struct host_policy {
    struct str name;
    bool has_cpus, has_node;
    cpu_set_t cpus; /* not empty */
    unsigned node;  /* < NUMA_NODES_MAX: memory is taken from this NUMA node */
};

struct host_policies {
    const struct host_policy *items;
    size_t n;
};

/* Reads "NAME,SETTING=VALUE" texts. The settings are `cpu-cores`, a list of CPUs as "0-3,8,10-11",
 * and `numa-node`, a number; of a setting that is given twice for a name, the last one counts.
 * Whether the machine has them is found out when a policy is applied.
 * Returns: ST_BAD_CONFIG. Owns: the items are in `arena`; their names are views of `texts`. */
enum status host_policies_parse(const char *const *texts, size_t n, struct arena *arena,
                                struct host_policies *out, struct error *err) SLUICE_MUST_USE;
/* Returns: NULL: there is none of that name. */
const struct host_policy *host_policies_find(const struct host_policies *policies, struct str name);

/* The smallest policy that allows what both do: all their CPUs, and a node if it is the same. */
void host_policy_join(struct host_policy *policy, const struct host_policy *other);
/* Returns: how many CPUs of the policy a thread may use that may use those of `placement`. */
struct thread_placement;
unsigned host_policy_count_cpus(const struct host_policy *policy,
                                const struct thread_placement *placement);

/* Where a thread runs and where it takes memory. */
struct thread_placement {
    bool has_cpus, has_memory; /* false: unknown */
    cpu_set_t cpus;
    int memory_mode;
    unsigned long memory_nodes[NUMA_NODES_MAX / (8 * sizeof(unsigned long))];
};

/* Reads that of the calling thread. */
void thread_placement_read(struct thread_placement *out);
/* Places the calling thread as `policy` says (NULL: it says nothing), and as `otherwise` for what
 * it does not say. CPUs of the policy that `otherwise` lacks are left out, as the machine does not
 * have them, or the process may not use them.
 * Returns: ST_BAD_CONFIG when no CPU is left, or the machine has no such node; ST_IO when the
 * system refuses. The placement is undefined then. */
enum status thread_placement_apply(const struct thread_placement *otherwise,
                                   const struct host_policy *policy,
                                   struct error *err) SLUICE_MUST_USE;
/* The same without a policy; a failure is logged. */
void thread_placement_restore(const struct thread_placement *placement);

#endif
