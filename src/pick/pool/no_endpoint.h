/* Why a request gets no endpoint: all texts of ST_NO_ENDPOINT (503). */
#ifndef SLUICE_PICK_POOL_NO_ENDPOINT_H
#define SLUICE_PICK_POOL_NO_ENDPOINT_H

#include "core/base/status.h"
#include "pick/pool/subset.h"

struct pool_no_endpoint {
    size_t n_endpoints, n_ready; /* of the pool */
    /* The first of these that is set is the reason; none is: no endpoint of the pool is ready. */
    uint32_t n_filtered;         /* the profile's filters removed these */
    uint64_t waited_ms;          /* in the request queue */
    const char *wait_limit;      /* with waited_ms: the member of flow_control */
    bool is_explained;           /* `sluice pick --explain`, which lists the endpoints above it */
    const struct subset *subset; /* the request may go to these only */
};

/* Returns: ST_NO_ENDPOINT. */
enum status pool_no_endpoint_error(const struct pool_no_endpoint *why, struct error *err);

#endif
