/* Whether the kernel is short of memory for this process, which then gives back what it only
 * caches. Two signs are enough: tasks of the process's control group waited for memory a tenth of
 * the time (pressure stall information, the machine's where the group has none), or the group's
 * working set is 15/16 of its limit: memory.current without the inactive_file of memory.stat, which
 * the kernel can drop. The latter with v2 only. */
#ifndef SLUICE_CORE_OS_MEMORY_PRESSURE_H
#define SLUICE_CORE_OS_MEMORY_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

/* Where to read. */
struct memory_pressure_files {
    const char *proc_cgroup; /* CGROUP_PROC */
    const char *mount;       /* CGROUP_MOUNT */
    const char *machine;     /* the folder of the machine's `memory`: MEMORY_PRESSURE_MACHINE */
};

#define MEMORY_PRESSURE_MACHINE "/proc/pressure"

/* Zeroed memory is the initial state. */
struct memory_pressure {
    bool has_stalls; /* of an earlier check */
    uint64_t stalled_us, checked_ns;
};

/* Reads the files. Returns: whether memory is short; stalls are found from the second call on, over
 * the time since the last one. Thread: one at a time. */
bool memory_pressure_check(struct memory_pressure *self, const struct memory_pressure_files *files,
                           uint64_t now_ns);

/* Returns freed memory of the heap to the system. Thread: any. */
void heap_purge(void);

#endif
