/* The memory that this process may use, read once at the start. */
#include "core/os/memory_limit.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "core/base/num.h"
#include "core/os/cgroup.h"

/* v1 writes "no limit" as the largest number of whole pages, which depends on the page size. */
#define V1_NO_LIMIT (UINT64_C(1) << 62)
/* Used when sysinfo fails, as it may in a sandbox. */
#define MACHINE_UNKNOWN_BYTES (UINT64_C(1) << 30)

/* Keeps the smallest limit in *limit (0: none). */
static void visit_file(uint64_t *limit, const char *folder, const char *name) {
    char text[CGROUP_FILE_BYTES];
    struct str line = cgroup_read_line(folder, name, text);
    uint64_t n_bytes;
    if (!line.ptr || !num_parse_u64(line, &n_bytes)) {
        return; /* "max" is not a number */
    }
    if (n_bytes > 0 && n_bytes < V1_NO_LIMIT && (*limit == 0 || n_bytes < *limit)) {
        *limit = n_bytes;
    }
}

static void visit_group(void *user, enum cgroup_version version, const char *folder) {
    uint64_t *limit = user;
    if (version == CGROUP_V2) {
        visit_file(limit, folder, "memory.max");
        visit_file(limit, folder, "memory.high");
    } else {
        visit_file(limit, folder, "memory.limit_in_bytes");
    }
}

uint64_t memory_limit_cgroup_read(const char *proc_cgroup, const char *mount) {
    uint64_t limit = 0;
    cgroup_walk(proc_cgroup, mount, "memory", visit_group, &limit);
    return limit;
}

static uint64_t machine_memory(void) {
    struct sysinfo info;
    if (sysinfo(&info) != 0 || info.totalram == 0) {
        return MACHINE_UNKNOWN_BYTES;
    }
    return (uint64_t)info.totalram * info.mem_unit;
}

/* `rc` is what getrlimit returned. Returns: the soft limit; 0: none. */
static uint64_t soft_limit(int rc, const struct rlimit *limit) {
    return rc == 0 && limit->rlim_cur != RLIM_INFINITY ? limit->rlim_cur : 0;
}

void memory_limit_smallest(const uint64_t limits[MEMORY_LIMIT_SOURCES], struct memory_limit *out) {
    *out = (struct memory_limit){limits[MEMORY_LIMIT_MACHINE], MEMORY_LIMIT_MACHINE};
    for (unsigned i = 0; i < MEMORY_LIMIT_SOURCES; i++) {
        if (limits[i] > 0 && limits[i] < out->n_bytes) {
            *out = (struct memory_limit){limits[i], (enum memory_limit_source)i};
        }
    }
}

void memory_limit_read(struct memory_limit *out) {
    struct rlimit address_space, data;
    int address_space_rc = getrlimit(RLIMIT_AS, &address_space);
    int data_rc = getrlimit(RLIMIT_DATA, &data);
    const uint64_t limits[MEMORY_LIMIT_SOURCES] = {
        [MEMORY_LIMIT_MACHINE] = machine_memory(),
        [MEMORY_LIMIT_CGROUP] = memory_limit_cgroup_read(CGROUP_PROC, CGROUP_MOUNT),
        [MEMORY_LIMIT_ADDRESS_SPACE] = soft_limit(address_space_rc, &address_space),
        [MEMORY_LIMIT_DATA] = soft_limit(data_rc, &data),
    };
    memory_limit_smallest(limits, out);
}

const char *memory_limit_source_text(enum memory_limit_source source) {
    static const char *const TEXTS[] = {
        [MEMORY_LIMIT_MACHINE] = "memory of the machine",
        [MEMORY_LIMIT_CGROUP] = "limit of the cgroup",
        [MEMORY_LIMIT_ADDRESS_SPACE] = "limit on the address space",
        [MEMORY_LIMIT_DATA] = "limit on the data segment",
    };
    return TEXTS[source];
}
