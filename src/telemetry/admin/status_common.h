/* What the status pages of the server and of the picker have in common, beside status_common.css
 * and .js: the numbers of the process, and how a page is sent. */
#ifndef SLUICE_TELEMETRY_ADMIN_STATUS_COMMON_H
#define SLUICE_TELEMETRY_ADMIN_STATUS_COMMON_H

#include "core/base/json_writer.h"
#include "core/base/metric/histogram.h"
#include "net/server/http/server.h"
#include "telemetry/admin/process.h"

/* Members now_ns, server, process and errors. */
void status_json_add_process(struct json_writer *json, struct admin_process *process, bool ready);
/* A member with the sum and the buckets, up to the last that is not empty: bucket i counts what is
 * at most 2^i microseconds, or items. */
void status_json_add_histogram(struct json_writer *json, const char *name,
                               const struct metric_distribution *distribution);
/* Answers with a page that is one file: the browser is told to load nothing. */
void status_page_reply(struct http_exchange *exchange, struct str page);

#endif
