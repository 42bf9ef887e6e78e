/* KServe v2 over HTTP: the front end that stands between the HTTP server and the models. It routes,
 * checks methods, and hands inference to infer.c. What bytes mean is `wire`'s business, what a
 * model does is `model`'s.
 *
 * Thread: http_api_free on the main thread, the handler on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_API_H
#define SLUICE_SERVE_FRONTEND_HTTP_API_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codec/kserve/request.h"
#include "net/server/http/server.h"
#include "serve/admin/metrics.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/keys.h"
#include "serve/repository/repository.h"
#include "serve/scheduler/per_worker.h"
#include "serve/trace/tracer.h"

struct http_api {
    struct repository *repository;
    struct json_limits limits;
    uint64_t max_body_size;               /* for messages and decompression; net enforces it */
    const char *server_name;              /* metadata: name */
    const char *server_version;           /* metadata: version */
    const struct keys *keys;              /* NULL: whoever asks may */
    const struct header_forward *forward; /* headers for models; NULL: none */
    struct admin_metrics *metrics;
    struct shm_registry *shared; /* serve/frontend/shm_registry.h */
    struct tracer *tracer;
    struct per_worker_table decode_caches; /* of inferences; infer.c */
    atomic_bool draining;                  /* ready says 503 from now on */
};

/* The table of callbacks for http_server_new; `api` must outlive the server. */
struct http_handler http_api_handler(struct http_api *api);
/* `ready` turns 503 at once; requests are still served. Thread: any. */
void http_api_drain(struct http_api *api);
/* Frees what workers had; after the server. */
void http_api_free(struct http_api *api);

#endif
