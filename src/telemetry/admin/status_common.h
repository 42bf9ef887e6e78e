/* Common parts of the status pages of the server and the picker, with status_common.css and .js:
 * the process's numbers, and the response with a page. */
#ifndef SLUICE_TELEMETRY_ADMIN_STATUS_COMMON_H
#define SLUICE_TELEMETRY_ADMIN_STATUS_COMMON_H

#include "core/base/json_writer.h"
#include "core/base/metric/histogram.h"
#include "net/server/http/server.h"
#include "net/server/report.h"
#include "telemetry/admin/process.h"

/* Members now_ns, server, process and errors. */
void status_json_add_process(struct json_writer *json, struct admin_process *process, bool ready);
/* Member memory: what clients hold. */
void status_json_add_memory(struct json_writer *json, const struct net_memory_report *memory);
/* Adds a member with the sum and the buckets up to the last one that is not empty: bucket i counts
 * values of at most 2^i (microseconds or items). */
void status_json_add_histogram(struct json_writer *json, const char *name,
                               const struct metric_distribution *distribution);
/* Replies with a page that is one file and loads no other resource. `page` stays valid, `end` is in
 * the exchange's arena, or empty: what clients do not read of a page that is the same for all takes
 * no memory. */
void status_page_reply(struct http_exchange *exchange, struct str page, struct str end);

#endif
