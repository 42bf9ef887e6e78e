/* The logging extension over HTTP. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_LOGGING_H
#define SLUICE_SERVE_FRONTEND_HTTP_LOGGING_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* GET and POST /v2/logging. */
void http_logging_begin(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path);

#endif
