/* The statistics extension over HTTP. */
#ifndef SLUICE_SERVE_HTTP_STATS_H
#define SLUICE_SERVE_HTTP_STATS_H

#include "serve/http_api.h"
#include "wire/v2_path.h"

/* GET /v2/models/stats, /v2/models/M[/versions/V]/stats. */
void http_stats_answer(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path);

#endif
