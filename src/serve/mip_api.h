/* The Model Invocation Protocol: the front end that stands between the MIP server and the models. A
 * listener serves one model; a packet is one inference of it.
 *
 * Thread: the handler on any worker. */
#ifndef SLUICE_SERVE_MIP_API_H
#define SLUICE_SERVE_MIP_API_H

#include "model/repository.h"
#include "net/mip_server.h"
#include "picture/picture.h"
#include "serve/mip_target.h"
#include "serve/tracer.h"
#include "wire/v2_request.h"

struct mip_api {
    struct repository *repository; /* its versions have a plan: mip_plan_add */
    struct pictures *pictures;
    struct tracer *tracer;
    struct json_limits limits;     /* of items in JSON */
    uint64_t request_memory_bytes; /* of one packet, besides its payload */
};

/* The table of callbacks for mip_server_new; `api` must outlive the server. The cookie that
 * mip_server_listen is given is a struct mip_target, resolved. */
struct mip_handler mip_api_handler(struct mip_api *api);

#endif
