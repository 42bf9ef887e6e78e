/* The texts name what an operator can count: endpoints, ready ones, the request's subset. */
#include "pick/pool/no_endpoint.h"

enum status pool_no_endpoint_error(const struct pool_no_endpoint *why, struct error *err) {
    const struct subset *subset = why->subset;
    if (why->n_filtered > 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "the filters of the profile removed all %u candidate endpoints",
                         why->n_filtered);
    }
    if (why->waited_ms > 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "none of the pool's %zu endpoints is ready after %llu ms in the request "
                         "queue (flow_control.%s)",
                         why->n_endpoints, (unsigned long long)why->waited_ms, why->wait_limit);
    }
    if (why->is_explained) {
        return error_set(err, ST_NO_ENDPOINT,
                         "none of the pool's %zu endpoints is ready and in the request's subset",
                         why->n_endpoints);
    }
    if (!subset) {
        return error_set(err, ST_NO_ENDPOINT, "none of the pool's %zu endpoints is ready",
                         why->n_endpoints);
    }
    if (subset->n + subset->n_unreadable == 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "the request's endpoint subset is empty; the pool has %zu endpoints, of "
                         "which %zu are ready",
                         why->n_endpoints, why->n_ready);
    }
    return error_set(
        err, ST_NO_ENDPOINT,
        "none of the %zu endpoints in the request's subset (%zu of them not an address) is in the "
        "pool and ready; the pool has %zu endpoints, of which %zu are ready",
        subset->n + subset->n_unreadable, subset->n_unreadable, why->n_endpoints, why->n_ready);
}
