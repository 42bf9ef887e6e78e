/* Token buckets for events that are rare with a correct peer and frequent in an attack. Sans I/O.
 *
 * A reset of an answered stream costs no token: proxies reset their streams routinely. */
#ifndef SLUICE_NET_TRANSPORT_H2_RATE_LIMIT_H
#define SLUICE_NET_TRANSPORT_H2_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct h2_bucket {
    uint64_t used;
    uint64_t since_ns; /* tokens are refilled up to this time */
};

/* Burst and sustained rate. */
struct h2_rate_limit {
    uint64_t burst;
    uint64_t per_second;
};

/* PING, SETTINGS, PRIORITY and empty frames: they need no call and require a response. */
static const struct h2_rate_limit H2_CONTROL_LIMIT = {2000, 200};
/* Resets of unanswered calls: clients with short deadlines send thousands, an attack hundreds of
 * thousands. */
static const struct h2_rate_limit H2_RESETS_LIMIT = {30000, 15000};

/* Takes a token. Returns: false when the bucket is empty: the connection must be closed. */
static inline bool h2_bucket_take(struct h2_bucket *bucket, const struct h2_rate_limit *allowance,
                                  uint64_t now_ns) {
    uint64_t step_ns = UINT64_C(1000000000) / allowance->per_second;
    uint64_t back = (now_ns - bucket->since_ns) / step_ns;
    if (back > 0) {
        bucket->since_ns += back * step_ns;
        bucket->used = back < bucket->used ? bucket->used - back : 0;
    }
    return ++bucket->used <= allowance->burst;
}

#endif
