/* The memory that this process may use: the smallest of its control groups' limits (v1 and v2), of
 * its resource limits, and of the machine's memory. */
#ifndef SLUICE_CORE_OS_MEMORY_LIMIT_H
#define SLUICE_CORE_OS_MEMORY_LIMIT_H

#include <stdint.h>

enum memory_limit_source {
    MEMORY_LIMIT_MACHINE,
    MEMORY_LIMIT_CGROUP,
    MEMORY_LIMIT_ADDRESS_SPACE, /* RLIMIT_AS */
    MEMORY_LIMIT_DATA,          /* RLIMIT_DATA */
    MEMORY_LIMIT_SOURCES,
};

struct memory_limit {
    uint64_t n_bytes; /* > 0 */
    enum memory_limit_source source;
};

/* Fills `out` for this process. Thread: any. */
void memory_limit_read(struct memory_limit *out);

/* Takes the smallest of the limits, in bytes, by their source; 0: none. The machine's must not be
 * 0. */
void memory_limit_smallest(const uint64_t limits[MEMORY_LIMIT_SOURCES], struct memory_limit *out);

/* For messages: "memory of the machine", "limit of the cgroup". */
const char *memory_limit_source_text(enum memory_limit_source source);

/* The limit of control groups alone, in bytes (0: none), of a process whose /proc/self/cgroup is
 * `proc_cgroup`, with the groups mounted under `mount`: the smallest along its path. The lower
 * memory.high of v2 counts as memory.max does: past it the kernel slows the process down to reclaim
 * its pages. Thread: any. */
uint64_t memory_limit_cgroup_read(const char *proc_cgroup, const char *mount);

#endif
