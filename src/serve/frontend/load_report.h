/* Load reports for load balancers: requests queued, requests running, and instances, of a model
 * version and of the whole server. As JSON at GET /v2/load, and in the response header
 * `endpoint-load-metrics` (an ORCA load report, which Envoy and gateways read) when the request has
 * `endpoint-load-metrics-format: TEXT` (or JSON).
 *
 * Thread: any. */
#ifndef SLUICE_SERVE_FRONTEND_LOAD_REPORT_H
#define SLUICE_SERVE_FRONTEND_LOAD_REPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "codec/http1/request.h"
#include "core/base/buf.h"
#include "serve/repository/repository.h"

enum { LOAD_ENTRY_BYTES = 96 }; /* of a version, about */

/* Appends {"queued":…,"running":…,"instances":…,"models":[…]}. */
void load_report_print(struct repository *repository, struct buf *out);

enum load_report_format { LOAD_REPORT_NONE, LOAD_REPORT_TEXT, LOAD_REPORT_JSON };

/* The format that the request selects; LOAD_REPORT_NONE for any other value. */
enum load_report_format load_report_requested_format(const struct http_head *head);

struct load_counts {
    uint64_t queued, running, instances;
};

/* What all models have together, for the field in responses. Of more than LOAD_FEW_VERSIONS it is
 * counted once in LOAD_TOTALS_NS, because that takes time for each of them. Zeroed at first. */
struct load_totals {
    _Atomic uint64_t due_ns; /* when they are counted again */
    _Atomic uint64_t queued, running, instances;
};

enum { LOAD_FEW_VERSIONS = 64 };
static const uint64_t LOAD_TOTALS_NS = UINT64_C(10000000);

/* Returns: the totals, which `count` has counted at most LOAD_TOTALS_NS before `now_ns`, or is
 * counting on another thread. */
struct load_counts load_totals_get(struct load_totals *totals, uint64_t now_ns,
                                   struct load_counts (*count)(void *context), void *context);

/* The field's value, "TEXT …" or "JSON {…}". `version` NULL: no numbers of a single model. Returns:
 * an empty view when out of memory. Owns: in `arena`. */
struct str load_report_value(struct load_totals *totals, struct repository *repository,
                             struct model_version *version, enum load_report_format format,
                             struct arena *arena);
/* Appends the field to `fields`, which must have capacity for it, when the request selects a
 * format. Returns: the new number of fields. */
size_t load_report_add(struct http_field *fields, size_t n, const struct http_head *head,
                       struct load_totals *totals, struct repository *repository,
                       struct model_version *version, struct arena *arena);

#endif
