/* What a well-behaved peer does seldom and an attacker often, counted: each costs a token, tokens
 * come back with time. Sans I/O.
 *
 * A reset of a stream that was answered costs nothing: proxies end theirs so as a matter of
 * course. */
#ifndef SLUICE_NET_TRANSPORT_H2_RATE_LIMIT_H
#define SLUICE_NET_TRANSPORT_H2_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct h2_bucket {
    uint64_t used;
    uint64_t since_ns; /* up to when tokens have been given back */
};

/* How much is allowed at once, and for ever. */
struct h2_rate_limit {
    uint64_t burst;
    uint64_t per_second;
};

/* Pings, settings, priorities, empty frames: what needs no call and asks for an answer. */
static const struct h2_rate_limit H2_CONTROL_LIMIT = {2000, 200};
/* Resets of calls that were not answered: clients with short deadlines do that by the thousand, an
 * attack by the hundred thousand. */
static const struct h2_rate_limit H2_RESETS_LIMIT = {30000, 15000};

/* Takes a token. Returns: false when there is none: this is no peer to serve. */
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
