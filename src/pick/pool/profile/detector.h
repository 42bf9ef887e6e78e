/* The parameters of upstream's saturation detectors. A detector is a filter of a profile, and the
 * configuration's saturation detector (pick/pool/flow/saturation.h), which reads the same
 * parameters. */
#ifndef SLUICE_PICK_POOL_PROFILE_DETECTOR_H
#define SLUICE_PICK_POOL_PROFILE_DETECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Of a utilization-detector. */
struct utilization_settings {
    uint64_t queue_depth; /* requests that wait at an endpoint */
    double kv_cache;      /* the share of its KV cache that is used */
    double headroom;      /* of a filter: what its limits are larger by */
    uint64_t max_age_ns;  /* of a load report; 0: not given */
    bool stale_is_saturated;
};

enum concurrency_mode { CONCURRENCY_REQUESTS, CONCURRENCY_TOKENS, CONCURRENCY_HYBRID };

/* Of a concurrency-detector. */
struct concurrency_settings {
    uint64_t max_requests, max_tokens; /* in flight at an endpoint */
    double headroom;                   /* as above */
    enum concurrency_mode mode;
    struct str producer;
};

#endif
