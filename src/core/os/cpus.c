/* The CPUs that this process may use, by the quota of its control group (time per period) and by
 * its affinity mask, both read once at the start. A file that is missing or malformed is no
 * limit. */
#include "core/os/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>

#include "core/base/num.h"
#include "core/base/str.h"
#include "core/os/cgroup.h"

enum { CPUS_MAX = 1 << 16 };

static unsigned affinity_count(void) {
    /* The kernel's call fails for a mask smaller than its own. */
    for (size_t n = 1024; n <= CPUS_MAX; n *= 2) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set) {
            break;
        }
        size_t size = CPU_ALLOC_SIZE(n);
        int rc = sched_getaffinity(0, size, set);
        int error = errno;
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0) {
            return count > 0 ? (unsigned)count : 1;
        }
        if (error != EINVAL) {
            break;
        }
    }
    return 1;
}

static double quota_ratio(struct str quota, struct str period) {
    int64_t q;
    uint64_t p;
    if (!num_parse_i64(quota, &q) || !num_parse_u64(period, &p) || q <= 0 || p == 0) {
        return 0; /* "max", or -1 */
    }
    return (double)q / (double)p;
}

/* v2: "QUOTA PERIOD" in cpu.max. */
static double group_quota_v2(const char *folder) {
    char text[CGROUP_FILE_BYTES];
    struct str rest = cgroup_read_line(folder, "cpu.max", text);
    if (!rest.ptr) {
        return 0;
    }
    struct str quota = str_cut(&rest, ' ');
    return quota_ratio(quota, rest);
}

/* v1: a file each. */
static double group_quota_v1(const char *folder) {
    char quota[CGROUP_FILE_BYTES], period[CGROUP_FILE_BYTES];
    struct str q = cgroup_read_line(folder, "cpu.cfs_quota_us", quota);
    struct str p = cgroup_read_line(folder, "cpu.cfs_period_us", period);
    return q.ptr && p.ptr ? quota_ratio(q, p) : 0;
}

/* Keeps the smallest quota in `user`. */
static void visit_group(void *user, enum cgroup_version version, const char *folder) {
    double *quota = user;
    double own = version == CGROUP_V2 ? group_quota_v2(folder) : group_quota_v1(folder);
    if (own > 0 && (*quota <= 0 || own < *quota)) {
        *quota = own;
    }
}

double cpus_quota_read(const char *proc_cgroup, const char *mount) {
    double quota = 0;
    cgroup_walk(proc_cgroup, mount, "cpu", visit_group, &quota);
    return quota;
}

void cpus_read(struct cpus *out) {
    out->affinity = affinity_count();
    out->quota = cpus_quota_read(CGROUP_PROC, CGROUP_MOUNT);
    out->usable = out->affinity;
    out->quota_below_affinity = out->quota > 0 && out->quota < (double)out->affinity;
    if (out->quota_below_affinity) {
        double whole = (double)(unsigned)out->quota;
        out->usable = (unsigned)out->quota + (whole < out->quota ? 1 : 0);
    }
    if (out->usable == 0) {
        out->usable = 1;
    }
}
