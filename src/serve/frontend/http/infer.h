/* One inference over HTTP: head → decode → check → model → encode → answer. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_INFER_H
#define SLUICE_SERVE_FRONTEND_HTTP_INFER_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* The head of POST …/infer was read: finds the model, reads the headers that decide how the body is
 * received, or answers with an error at once. */
void http_infer_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path);

#endif
