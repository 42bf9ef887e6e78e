/* The trace extension over HTTP. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_TRACE_H
#define SLUICE_SERVE_FRONTEND_HTTP_TRACE_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* GET and POST /v2/trace/setting, /v2/models/M/trace/setting. */
void http_trace_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path);

#endif
