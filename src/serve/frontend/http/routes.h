/* The routes of the HTTP front end: the function of each row of routes.c. The context of the
 * handlers is the struct http_api. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_ROUTES_H
#define SLUICE_SERVE_FRONTEND_HTTP_ROUTES_H

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/path.h"
#include "serve/frontend/http/http_api.h"

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

/* ---- routes with one answer ------------------------------------------------------------------ */

/* The request is complete: appends the body of the response to `out`; nothing: it has none. */
typedef enum status http_unary_handler(struct http_api *api, struct http_exchange *exchange,
                                       const struct v2_path *path, struct buf *out,
                                       struct error *err);

/* Responds with the JSON of a message, which is in the exchange's arena. */
void http_document_reply(struct http_exchange *exchange, enum v2_grpc_document document,
                         const struct buf *message);

/* logging.c: GET and POST /v2/logging. */
http_unary_handler http_answer_logging;

/* trace.c: GET and POST /v2/trace/setting, /v2/models/M/trace/setting. */
http_unary_handler http_answer_trace;

/* shared_memory.c: GET /v2/systemsharedmemory[/region/NAME]/status, POST …/region/NAME/register,
 * …[/region/NAME]/unregister. */
http_unary_handler http_answer_memory_status, http_answer_memory_register,
    http_answer_memory_unregister;

#endif
