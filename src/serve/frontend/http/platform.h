/* The two paths that Google's Vertex AI and Amazon's SageMaker know of a container: one that tells
 * its health, one that runs a model; and those of SageMaker's multi-model endpoints (models.c).
 * Their requests become those of KServe v2 before they are routed, so keys, restrictions and limits
 * hold as for these. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_PLATFORM_H
#define SLUICE_SERVE_FRONTEND_HTTP_PLATFORM_H

#include <stdbool.h>

#include "net/server/http/server.h"

struct http_api;

enum http_platform_kind { HTTP_PLATFORM_NONE, HTTP_PLATFORM_VERTEX_AI, HTTP_PLATFORM_SAGEMAKER };

struct http_platform {
    enum http_platform_kind kind;
    const char *health_route, *predict_route; /* "/ping" */
    const char *health;                       /* "live" or "ready" */
    const char *model;                        /* NULL: the only one that is ready */
    const char *inference;                    /* "infer", "generate" or "generate_stream" */
    const char *models; /* "/opt/ml/models": multi-model endpoints load from below it; NULL: off */
};

/* The head was read: one with a path of the platform gets the path of KServe v2, and the field with
 * the length of its JSON. Returns: false when it has replied with an error. */
bool http_platform_route(const struct http_api *api, struct http_exchange *exchange);
/* Returns: the Content-Type of a response with binary tensors, whose JSON has `json_bytes`, to such
 * a request; NULL: it is none, or out of memory. */
const char *http_platform_binary_type(const struct http_api *api,
                                      const struct http_exchange *exchange, size_t json_bytes);

#endif
