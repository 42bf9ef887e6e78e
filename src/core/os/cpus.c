/* The CPUs that this process may use, by the quota of its control group (time per period) and by
 * its affinity mask, both read once at the start. A file that is missing or malformed is no
 * limit. */
#include "core/os/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/num.h"
#include "core/base/str.h"

enum { CPUS_FILE_BYTES = 8192, CPUS_PATH_BYTES = 4096, CPUS_MAX = 1 << 16 };

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

/* Reads a small text file. Returns: ptr NULL when it cannot be read whole. */
static struct str file_read(const char *path, char *out) {
    FILE *file = fopen(path, "re");
    if (!file) {
        return str_make(NULL, 0);
    }
    size_t n = fread(out, 1, CPUS_FILE_BYTES, file);
    fclose(file);
    return n < CPUS_FILE_BYTES ? str_make(out, n) : str_make(NULL, 0);
}

static double quota_ratio(struct str quota, struct str period) {
    int64_t q;
    uint64_t p;
    if (!num_parse_i64(quota, &q) || !num_parse_u64(period, &p) || q <= 0 || p == 0) {
        return 0; /* "max", or -1 */
    }
    return (double)q / (double)p;
}

static struct str first_line(struct str text) {
    return text.ptr ? str_trim(str_cut(&text, '\n')) : text;
}

/* v2: "QUOTA PERIOD" in cpu.max. */
static double group_quota_v2(const char *folder) {
    char path[CPUS_PATH_BYTES + 32], text[CPUS_FILE_BYTES];
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    struct str rest = first_line(file_read(path, text));
    if (!rest.ptr) {
        return 0;
    }
    struct str quota = str_cut(&rest, ' ');
    return quota_ratio(quota, rest);
}

/* v1: a file each. */
static double group_quota_v1(const char *folder) {
    char path[CPUS_PATH_BYTES + 32], quota[CPUS_FILE_BYTES], period[CPUS_FILE_BYTES];
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    struct str q = first_line(file_read(path, quota));
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    struct str p = first_line(file_read(path, period));
    return q.ptr && p.ptr ? quota_ratio(q, p) : 0;
}

static double smaller_quota(double a, double b) {
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The smallest quota from the group `path` up to the mount. In a container the path may be the
 * host's and not exist: then only the parents that exist count. */
static double path_quota(const char *mount, struct str path, double (*read)(const char *folder)) {
    double quota = 0;
    for (;;) {
        char folder[CPUS_PATH_BYTES];
        int n = snprintf(folder, sizeof(folder), "%s%.*s", mount, STR_ARG(path));
        if (n < 0 || (size_t)n >= sizeof(folder)) {
            return quota;
        }
        quota = smaller_quota(quota, read(folder));
        if (path.len <= 1) {
            return quota;
        }
        while (path.len > 0 && path.ptr[path.len - 1] != '/') {
            path.len--;
        }
        if (path.len > 0) {
            path.len--; /* the slash itself */
        }
    }
}

static bool has_cpu_controller(struct str controllers) {
    while (controllers.ptr) {
        if (str_is(str_cut(&controllers, ','), "cpu")) {
            return true;
        }
    }
    return false;
}

/* One line "ID:CONTROLLERS:PATH"; v2's has ID 0 and no controllers. */
static double line_quota(const char *mount, struct str line) {
    struct str rest = line;
    struct str id = str_cut(&rest, ':');
    struct str controllers = rest.ptr ? str_cut(&rest, ':') : rest;
    if (!rest.ptr) {
        return 0;
    }
    if (str_is(id, "0") && controllers.len == 0) {
        return path_quota(mount, rest, group_quota_v2);
    }
    if (!has_cpu_controller(controllers)) {
        return 0;
    }
    char folder[CPUS_PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s/%.*s", mount, STR_ARG(controllers));
    double quota = path_quota(folder, rest, group_quota_v1);
    snprintf(folder, sizeof(folder), "%s/cpu", mount);
    return smaller_quota(quota, path_quota(folder, rest, group_quota_v1));
}

double cpus_quota_read(const char *proc_cgroup, const char *mount) {
    char text[CPUS_FILE_BYTES];
    struct str rest = file_read(proc_cgroup, text);
    double quota = 0;
    while (rest.ptr && rest.len > 0) {
        quota = smaller_quota(quota, line_quota(mount, str_cut(&rest, '\n')));
    }
    return quota;
}

void cpus_read(struct cpus *out) {
    out->affinity = affinity_count();
    out->quota = cpus_quota_read("/proc/self/cgroup", "/sys/fs/cgroup");
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
