/* The routes of the HTTP front end: the function that begins each route of api.c. The context of
 * their handlers is the struct http_api. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_ROUTES_H
#define SLUICE_SERVE_FRONTEND_HTTP_ROUTES_H

#include "codec/kserve/path.h"
#include "serve/config/config.h"
#include "serve/frontend/http/api.h"

/* The limit of a body that contains neither tensors nor files: a few short members, and unknown
 * ones. */
enum { HTTP_SMALL_BODY_BYTES = 65536 };

static inline void http_limit_body(struct http_exchange *exchange) {
    exchange->plan.max_bytes = HTTP_SMALL_BODY_BYTES;
    exchange->plan.setting = "the limit of this resource";
}

/* page.c: GET /metrics. */
void http_metrics_begin(struct http_exchange *exchange);
/* Answers a request, whose head was read, with a page that all clients share. */
void http_page_begin(struct http_exchange *exchange, enum shared_page_kind kind,
                     const char *content_type);
/* The same for a request that is complete. */
void http_page_send(struct http_api *api, struct http_exchange *exchange,
                    enum shared_page_kind kind, const char *content_type);

/* infer.c: the head of POST …/infer was read. Finds the model and reads the headers that decide how
 * the body is received, or answers with an error. */
void http_infer_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path);

/* generate.c: the head of POST …/generate or …/generate_stream was read. */
void http_generate_begin(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path);

/* repository.c: POST /v2/repository/index, /v2/repository/models/M/load and …/unload, by
 * path->resource. */
void http_repository_begin(struct http_api *api, struct http_exchange *exchange,
                           const struct v2_path *path);

/* shared_memory.c: GET /v2/systemsharedmemory[/region/NAME]/status */
void http_memory_answer_status(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path);
/* POST …/region/NAME/register, …[/region/NAME]/unregister */
void http_memory_begin(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path);

/* stats.c: GET /v2/models/stats, /v2/models/M[/versions/V]/stats. */
void http_stats_answer(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path);
/* Appends those of all models; `context` is the struct repository. */
void http_stats_print(void *context, struct buf *out);

/* logging.c: GET and POST /v2/logging. */
void http_logging_begin(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path);

/* trace.c: GET and POST /v2/trace/setting, /v2/models/M/trace/setting. */
void http_trace_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path);

/* config.c: appends a model's configuration as JSON, in proto3's mapping of ModelConfig with the
 * fields' own names: as configured, completed from the model, with defaults. Scalars and lists are
 * present also when empty, messages only when set; enums are names, 64-bit numbers are numbers.
 * Clause: model configuration extension. */
void config_json_print(struct buf *out, const struct model_config *config);

#endif
