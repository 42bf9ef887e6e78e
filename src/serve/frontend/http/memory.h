/* The system shared memory extension over HTTP. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_MEMORY_H
#define SLUICE_SERVE_FRONTEND_HTTP_MEMORY_H

#include "codec/kserve/path.h"
#include "serve/frontend/http/api.h"

/* GET /v2/systemsharedmemory[/region/NAME]/status */
void http_memory_answer_status(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path);
/* POST …/region/NAME/register, …[/region/NAME]/unregister */
void http_memory_begin(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path);

#endif
