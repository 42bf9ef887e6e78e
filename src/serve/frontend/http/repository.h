/* The model repository extension over HTTP. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_REPOSITORY_H
#define SLUICE_SERVE_FRONTEND_HTTP_REPOSITORY_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* POST /v2/repository/index, /v2/repository/models/M/load and …/unload, by path->resource. */
void http_repository_begin(struct http_api *api, struct http_exchange *exchange,
                           const struct v2_path *path);

#endif
