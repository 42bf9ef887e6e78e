/* What the kernel says of this process and of the machine under it. Nothing is kept but what a
 * share of time needs: what was seen the time before. */
#ifndef SLUICE_TELEMETRY_ADMIN_MACHINE_H
#define SLUICE_TELEMETRY_ADMIN_MACHINE_H

#include <stdint.h>

#include "core/base/str.h"
#include "core/event/lock.h"

/* What could not be read is 0. */
struct admin_machine_stats {
    uint64_t resident_bytes;
    double cpu_seconds; /* of the process */
    double utilization; /* of all the machine's CPUs, 0 to 1, over the last second or more */
    uint64_t memory_total_bytes, memory_used_bytes;
};

struct admin_machine {
    struct lock lock;
    uint64_t sampled_ns; /* when the two below were read */
    uint64_t busy, idle;
    double utilization; /* up to then */
};

/* The first time of CPUs to compare with is read here. */
void admin_machine_init(struct admin_machine *machine);
void admin_machine_fini(struct admin_machine *machine);
/* Thread: any. */
void admin_machine_read(struct admin_machine *machine, struct admin_machine_stats *out);

/* ---- for the tests --------------------------------------------------------------------------- */

/* The number behind a line's `key` ("MemTotal:"); 0 when there is none. */
uint64_t admin_machine_parse_number(struct str text, struct str key);
/* CPU time from /proc/stat, in ticks. */
void admin_machine_parse_cpu_ticks(struct str text, uint64_t *busy, uint64_t *idle);

#endif
