/* Token buckets for events that are rare with a correct peer and frequent in an attack. Sans I/O.
 *
 * A reset of a stream whose response has begun to leave costs no token: proxies reset their streams
 * routinely. A response that is only queued is no answer yet: a flood of resets comes in the same
 * read as its requests. */
#ifndef SLUICE_NET_TRANSPORT_H2_RATE_LIMIT_H
#define SLUICE_NET_TRANSPORT_H2_RATE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
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

/* PING, SETTINGS, PRIORITY, GOAWAY, empty frames, frames of unknown types, and WINDOW_UPDATE beyond
 * the credit below: they need no call and cost processing or a response. */
static const struct h2_rate_limit H2_CONTROL_LIMIT = {2000, 200};
/* Resets of unanswered calls: clients with short deadlines send thousands, an attack hundreds of
 * thousands. */
static const struct h2_rate_limit H2_RESETS_LIMIT = {30000, 15000};
/* Heads that are refused for their size, or that are far larger than their bytes on the wire
 * (h2_head_is_inflated): a wrong client has one for each of its calls, an attack hundreds of
 * thousands, because each costs the attacker few bytes. */
static const struct h2_rate_limit H2_HEADS_LIMIT = {2000, 200};

/* WINDOW_UPDATE frames that cost no token. A peer sends one or two for each DATA frame that it got,
 * more if it returns the window as its application reads, and some for a new stream. */
enum {
    H2_WINDOW_CREDIT_PER_STREAM = 4,
    H2_WINDOW_CREDIT_PER_DATA = 2,
    H2_WINDOW_CREDIT_BYTES = 256, /* one more for so many bytes of DATA */
    H2_MAX_WINDOW_CREDIT = 1 << 16,
};

static inline uint32_t h2_window_credit_add(uint32_t credit, size_t n) {
    return n < H2_MAX_WINDOW_CREDIT - credit ? credit + (uint32_t)n : H2_MAX_WINDOW_CREDIT;
}

/* Returns: whether a head repeats entries of the compression table (RFC 7541, 2.3): its decoded
 * size (RFC 9113, 10.5.1) is far more than its bytes on the wire, the whole table used once, and
 * Huffman codes of 5 bits can make. */
static inline bool h2_head_is_inflated(size_t decoded_bytes, size_t wire_bytes) {
    enum { FACTOR = 2, TABLE_BYTES = 16384 };
    return decoded_bytes > FACTOR * wire_bytes + TABLE_BYTES;
}

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
