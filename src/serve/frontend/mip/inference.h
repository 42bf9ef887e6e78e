/* The Model Invocation Protocol: the front end between the MIP server and the models. A listener
 * serves one model; a packet is one inference of it.
 *
 * Thread: the handler on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_INFERENCE_H
#define SLUICE_SERVE_FRONTEND_MIP_INFERENCE_H

#include "net/server/mip/server.h"
#include "serve/frontend/client_inference.h"
#include "serve/frontend/mip/target.h"
#include "serve/picture/picture.h"

struct mip_api {
    struct inference_services services; /* the repository's versions have a plan: mip_plan_add */
    struct pictures *pictures;
    uint64_t request_memory; /* limit of one packet, besides its payload */
};

/* The table of callbacks for mip_server_new; `api` must outlive the server. The user data of
 * mip_server_listen is a resolved struct mip_target. */
struct mip_handler mip_api_handler(struct mip_api *api);

#endif
