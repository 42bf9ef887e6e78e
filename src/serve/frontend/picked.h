/* Whether an endpoint picker had chosen this server for a request: behind a proxy that asks one,
 * requests without its choice went past the picker. */
#ifndef SLUICE_SERVE_FRONTEND_PICKED_H
#define SLUICE_SERVE_FRONTEND_PICKED_H

#include <stdbool.h>

#include "core/base/metric/metric.h"

/* The header of the endpoint picker protocol, which proxies forward. */
#define PICKED_FIELD "x-gateway-destination-endpoint"

/* Once for each inference request over HTTP, and each call over gRPC. */
static inline void picked_count(bool picked) {
    metric_add(picked ? METRIC_REQUESTS_PICKED : METRIC_REQUESTS_NOT_PICKED, 1);
}

#endif
