/* The generate extension over HTTP: a flat JSON object in, and one out, or any number of them as
 * server-sent events. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_GENERATE_H
#define SLUICE_SERVE_FRONTEND_HTTP_GENERATE_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* The head of POST …/generate or …/generate_stream was read. */
void http_generate_begin(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path);

#endif
