/* The metrics that every program has: version, age, CPU time and memory of the process and the
 * machine. */
#ifndef SLUICE_TELEMETRY_ADMIN_PROCESS_H
#define SLUICE_TELEMETRY_ADMIN_PROCESS_H

#include "core/base/metric/metric.h"
#include "net/server/http/server.h"
#include "telemetry/admin/machine.h"

struct admin_process {
    const char *version; /* of the program */
    struct admin_machine machine;
    double started_seconds;    /* Unix time */
    struct net_budget *budget; /* of clients; set after admin_process_init, as the next one */
    bool hides_machine;        /* leave out CPU and memory of the machine */
};

void admin_process_init(struct admin_process *process, const char *version);
void admin_process_fini(struct admin_process *process);
/* Prints its families. Thread: any. */
void admin_process_print(struct admin_process *process, struct metric_text *text);

#endif
