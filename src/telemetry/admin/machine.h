/* Resource usage of the process and the machine, from the kernel. The CPU utilization compares with
 * the sample before. */
#ifndef SLUICE_TELEMETRY_ADMIN_MACHINE_H
#define SLUICE_TELEMETRY_ADMIN_MACHINE_H

#include <stdint.h>

#include "core/base/str.h"
#include "core/event/lock.h"

/* Values that can't be read are 0. */
struct admin_machine_stats {
    uint64_t resident_bytes;
    double cpu_seconds; /* of the process, since it started */
    uint64_t virtual_bytes;
    double utilization; /* of all the machine's CPUs, 0 to 1, over the last second or more */
    uint64_t memory_total_bytes, memory_used_bytes;
};

struct admin_machine {
    struct lock lock;
    uint64_t sampled_ns; /* time of the last sample */
    uint64_t busy, idle;
    double utilization; /* at the last sample */
};

/* Takes the first CPU sample. */
void admin_machine_init(struct admin_machine *machine);
void admin_machine_fini(struct admin_machine *machine);
/* Thread: any. */
void admin_machine_read(struct admin_machine *machine, struct admin_machine_stats *out);

/* ---- for the tests --------------------------------------------------------------------------- */

/* Returns: the number after `key` ("MemTotal:") at the start of a line; 0 when there is none. */
uint64_t admin_machine_parse_number(struct str text, struct str key);
/* Parses the CPU time from /proc/stat, in ticks. */
void admin_machine_parse_cpu_ticks(struct str text, uint64_t *busy, uint64_t *idle);

#endif
