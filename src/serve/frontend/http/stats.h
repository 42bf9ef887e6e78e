/* The statistics extension over HTTP. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_STATS_H
#define SLUICE_SERVE_FRONTEND_HTTP_STATS_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* GET /v2/models/stats, /v2/models/M[/versions/V]/stats. */
void http_stats_answer(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path);

#endif
