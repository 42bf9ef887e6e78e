/* What /metrics says of any process of ours, whatever it serves: its version, age, CPU time and
 * memory, and the machine's; and answering with such a page. */
#ifndef SLUICE_TELEMETRY_ADMIN_PROCESS_H
#define SLUICE_TELEMETRY_ADMIN_PROCESS_H

#include "core/base/metric/metric.h"
#include "net/server/http/server.h"
#include "telemetry/admin/machine.h"

struct admin_process {
    const char *version; /* of the program */
    struct admin_machine machine;
    double started_seconds; /* since 1970 */
};

void admin_process_init(struct admin_process *process, const char *version);
void admin_process_fini(struct admin_process *process);
/* Writes its families. Thread: any. */
void admin_process_print(struct admin_process *process, struct metric_text *text);

/* Answers with the page that `print` writes, in the format that the request's Accept asks for. */
void metrics_page_reply(struct http_exchange *exchange,
                        void (*print)(void *context, struct metric_text *text), void *context);

#endif
