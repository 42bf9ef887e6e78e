/* What the status page draws, as one JSON object. Everything that only goes up is given as it
 * stands: whoever asks again sees how fast. */
#ifndef SLUICE_SERVE_ADMIN_STATUS_JSON_H
#define SLUICE_SERVE_ADMIN_STATUS_JSON_H

#include "core/base/buf.h"
#include "serve/admin/metrics.h"

/* Thread: any. */
void status_json_print(struct admin_metrics *metrics, struct buf *out);

#endif
