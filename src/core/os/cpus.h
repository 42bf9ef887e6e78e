/* The CPUs that this process may use: the smaller of the affinity mask and the cgroup's CPU quota
 * (v1 and v2), never the host's core count. */
#ifndef SLUICE_CORE_OS_CPUS_H
#define SLUICE_CORE_OS_CPUS_H

#include <stdbool.h>

struct cpus {
    unsigned usable; /* whole CPUs, >= 1: a quota of 1.5 counts as 2, then capped by the affinity */
    double quota;    /* CPUs; 0: no quota */
    unsigned affinity;
    bool quota_below_affinity; /* spinning threads would use up the quota */
};

/* Fills `out` for this process. Thread: any. */
void cpus_read(struct cpus *out);

/* The quota alone, in CPUs (0: none), of a process whose /proc/self/cgroup is `proc_cgroup`, with
 * the control groups mounted under `mount` ("/sys/fs/cgroup"): the smallest along its path, since a
 * group is limited by its parents' quotas too. Thread: any. */
double cpus_quota_read(const char *proc_cgroup, const char *mount);

#endif
