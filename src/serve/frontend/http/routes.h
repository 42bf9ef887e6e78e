/* KServe v2 over HTTP: the front end between the HTTP server and the models. routes.c has a row for
 * each resource: it checks key and method, and calls the function of the row, which answers at once
 * or when a body or a model is ready. The functions are in the files that are named below.
 *
 * Thread: the handler on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_ROUTES_H
#define SLUICE_SERVE_FRONTEND_HTTP_ROUTES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/path.h"
#include "net/server/http/server.h"
#include "serve/frontend/client_inference.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/http/platform.h"
#include "serve/frontend/keys.h"
#include "serve/frontend/load_report.h"
#include "serve/frontend/restrictions.h"
#include "telemetry/admin/http_text.h"

struct http_api {
    struct inference_services services;
    uint64_t max_body_size;                  /* enforced by the server */
    const char *server_name;                 /* metadata: name */
    const char *server_version;              /* metadata: version */
    const struct keys *keys;                 /* NULL: no keys are needed */
    const struct restrictions *restrictions; /* NULL: none */
    const struct web_access *web;            /* which requests web pages may make */
    const struct http_platform *platform;    /* whose paths are served besides; NULL: of none */
    const struct header_forward *forward;    /* headers forwarded to models; NULL: none */
    const char *status_url; /* of the status page; NULL: none. Set before connections are accepted
                             */
    atomic_bool draining;   /* /v2/health/ready answers 503 */
    struct load_totals load_totals;
};

/* The router for http_server_new; `api` must outlive the server. */
struct http_router http_api_router(struct http_api *api);
/* /v2/health/ready answers 503 from now on; requests are still served. Thread: any. */
void http_api_drain(struct http_api *api);

/* ---- functions of the rows; the context of their handlers is the struct http_api ------------- */

/* The head was read: responds by itself, or sets the exchange's handler. */
typedef void http_begin_handler(struct http_api *api, struct http_exchange *exchange,
                                const struct v2_path *path);
/* The request is complete: appends the body of the response to `out`; nothing: it has none. */
typedef enum status http_unary_handler(struct http_api *api, struct http_exchange *exchange,
                                       const struct v2_path *path, struct buf *out,
                                       struct error *err);

/* The limit of a body that contains neither tensors nor files: a few short members, and unknown
 * ones. */
enum { HTTP_SMALL_BODY_BYTES = 65536 };

static inline void http_limit_body(struct http_exchange *exchange) {
    exchange->plan.max_bytes = HTTP_SMALL_BODY_BYTES;
    exchange->plan.setting = "the limit of this resource";
}
/* Responds with the JSON of a message, which is in the exchange's arena. */
void http_document_reply(struct http_exchange *exchange, enum v2_grpc_document document,
                         const struct buf *message);

/* metadata.c: health of the server and its models, and what it tells about them. */
http_begin_handler http_answer_live, http_answer_ready, http_answer_model_ready;
http_unary_handler http_encode_server, http_encode_model, http_encode_config,
    http_encode_statistics, http_encode_index, http_print_load;

/* infer.c: POST …/infer. Finds the model and reads the headers that decide how the body is
 * received, or answers with an error. */
http_begin_handler http_infer_begin;

/* generate.c: POST …/generate and …/generate_stream. */
http_begin_handler http_generate_begin;

/* models.c: SageMaker's multi-model endpoints. */
struct http_models_call {
    struct str name; /* decoded; empty: of all */
    enum keys_group group;
    enum http_method_set methods;
};
/* Returns: whether the request is one for /models or /models/NAME, and the setting is on. */
bool http_models_match(const struct http_api *api, const struct http_exchange *exchange,
                       struct http_models_call *out);
void http_models_begin(struct http_api *api, struct http_exchange *exchange,
                       const struct http_models_call *call);
/* Returns: whether the path is /models/NAME/invoke, and the setting is on. */
bool http_models_is_invoke(const struct http_platform *platform, struct str path);
/* *out: the model of such a path. Returns: ST_UNKNOWN_MODEL, ST_BAD_REQUEST. */
enum status http_models_find(const struct http_api *api, const struct http_exchange *exchange,
                             struct str *out, struct error *err) SLUICE_MUST_USE;

/* management.c: POST /v2/repository/index, /v2/repository/models/M/load and …/unload, by
 * path->resource. */
http_begin_handler http_repository_begin;
/* GET and POST /v2/logging. */
http_unary_handler http_answer_logging;
/* GET and POST /v2/trace/setting, /v2/models/M/trace/setting. */
http_unary_handler http_answer_trace;
/* GET /v2/systemsharedmemory[/region/NAME]/status, POST …/region/NAME/register,
 * …[/region/NAME]/unregister. */
http_unary_handler http_answer_memory_status, http_answer_memory_register,
    http_answer_memory_unregister;
/* GET /v2/cudasharedmemory[/region/NAME]/status, POST …[/region/NAME]/unregister. */
http_unary_handler http_answer_cuda_status, http_answer_cuda_unregister;

/* page.c: GET /metrics. */
void http_metrics_begin(struct http_exchange *exchange);
/* Answers a request, whose head was read, with a page that all clients share. */
void http_page_begin(struct http_exchange *exchange, enum shared_page_kind kind,
                     const char *content_type);
/* The same for a request that is complete. */
void http_page_send(struct http_api *api, struct http_exchange *exchange,
                    enum shared_page_kind kind, const char *content_type);
/* Sets how the pages of HTTP are printed, besides metrics. */
void http_pages_list(struct shared_page_printing kinds[PAGE_KINDS], struct repository *repository);

/* The page at / for browsers: the bytes of try_page.html (cmake/embed.cmake). */
struct str try_page(void);

#endif
