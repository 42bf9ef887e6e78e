/* The few numbers that someone who chooses between servers needs: requests that wait, requests that
 * run, and instances; of a model version and of all together. As JSON at GET /v2/load, and with an
 * answer when its request asks: in the header field `endpoint-load-metrics` of an ORCA load report,
 * which Envoy and gateways read, asked for by `endpoint-load-metrics-format: TEXT` (or JSON).
 *
 * Thread: any. */
#ifndef SLUICE_SERVE_FRONTEND_LOAD_REPORT_H
#define SLUICE_SERVE_FRONTEND_LOAD_REPORT_H

#include <stdbool.h>

#include "codec/http1/request.h"
#include "core/base/buf.h"
#include "serve/repository/repository.h"

/* Appends {"queued":…,"running":…,"instances":…,"models":[…]}. */
void load_report_print(struct repository *repository, struct buf *out);

enum load_report_format { LOAD_REPORT_NONE, LOAD_REPORT_TEXT, LOAD_REPORT_JSON };

/* The form that a request asks for; LOAD_REPORT_NONE for one that is neither. */
enum load_report_format load_report_requested_format(const struct http_head *head);
/* The field's value, "TEXT …" or "JSON {…}". `version` may be NULL: then there is nothing about a
 * single model. Returns: an empty view when out of memory. Owns: it lies in `arena`. */
struct str load_report_value(struct repository *repository, struct model_version *version,
                             enum load_report_format format, struct arena *arena);
/* Appends the field to `fields`, which has room for it, when the request asked. Returns: the new
 * number of fields. */
size_t load_report_add(struct http_field *fields, size_t n, const struct http_head *head,
                       struct repository *repository, struct model_version *version,
                       struct arena *arena);

#endif
