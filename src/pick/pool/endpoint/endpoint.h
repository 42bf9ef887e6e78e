/* A model server that requests may be sent to, as long as a pool or a request knows it. It is one
 * object for as long as its address is wanted: when the pool's configuration changes it stays, with
 * its count of requests and its state.
 *
 * Thread: the atomics are written under the pool's lock and may be read by any thread that holds a
 * snapshot with the endpoint, or a ticket for it; the fields below them are the pool's. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_ENDPOINT_H
#define SLUICE_PICK_POOL_ENDPOINT_ENDPOINT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pick/pool/endpoint/address.h"
#include "pick/pool/profile/ranking.h"

/* What a choice looks at, in one number: the lower the better.
 *     requests in flight                     ready
 *     requests in flight + ENDPOINT_REFUSED  ready, but it just refused a connection; or not
 *                                            checked yet, so that nothing is known of it
 *     ENDPOINT_OUT                           not ready, or no longer in the pool */
#define ENDPOINT_REFUSED UINT32_C(0x80000000)
#define ENDPOINT_OUT UINT32_MAX

struct endpoint {
    alignas(64) struct ranked ranked; /* first: a ranked is cast to its endpoint */
    _Atomic uint32_t rank;
    _Atomic bool unchecked;     /* in the pool, not checked yet, and it has not refused either */
    _Atomic uint32_t in_flight; /* requests that were sent there and have not ended */
    _Atomic uint64_t n_picked;  /* in all */
    _Atomic uint64_t n_tokens;  /* of the requests in flight, as far as that is known */
    _Atomic uint32_t last_cold_request; /* of the requests of which nobody had the beginning: the
                                           last that
                                   was sent there; 0: none was */
    /* How long its answers took of late, in seconds, and when the last of them was seen; 0: none
       was. */
    _Atomic float first_byte_s, answer_s;
    _Atomic uint64_t answered_ns;
    uint32_t host; /* its number in the pool's table of prompts; 0: none */

    bool in_pool;              /* in the pool's newest snapshot */
    uint32_t member;           /* of that snapshot, if it is */
    bool known;                /* a check has ended, or there are none */
    bool ready;                /* with `known`: as checks say; true without checks */
    bool refused;              /* in the pool's list of those that refused a connection */
    uint64_t refused_until_ns; /* until when that counts */
    struct endpoint *refused_prev, *refused_next;
    uint64_t
        stalled_until_ns; /* nobody that waits is called for it until then: the last one that was
                             could
                           not go there, though it had room; 0: it isn't known to be so */
    _Atomic uint32_t n_snapshots; /* that it is in; without any it is only reached by tickets */

    struct endpoint_address address;
    uint32_t text_len;
    char text[ENDPOINT_TEXT_BYTES];     /* "10.0.0.1:8000", NUL-terminated */
    _Atomic uint64_t n_scrape_failures; /* times that it did not say its load; who asks it
                                                writes
                                       this */
};

static inline struct str endpoint_text(const struct endpoint *endpoint) {
    return str_make(endpoint->text, endpoint->text_len);
}
static inline uint32_t endpoint_rank(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->rank, memory_order_relaxed);
}
static inline uint32_t endpoint_in_flight(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->in_flight, memory_order_relaxed);
}
static inline uint64_t endpoint_n_picked(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->n_picked, memory_order_relaxed);
}
static inline uint64_t endpoint_n_scrape_failures(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->n_scrape_failures, memory_order_relaxed);
}
static inline uint64_t endpoint_n_tokens(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->n_tokens, memory_order_relaxed);
}
static inline uint32_t endpoint_last_cold_request(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->last_cold_request, memory_order_relaxed);
}
static inline float endpoint_first_byte_s(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->first_byte_s, memory_order_relaxed);
}
static inline float endpoint_answer_s(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->answer_s, memory_order_relaxed);
}
static inline uint64_t endpoint_answered_ns(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->answered_ns, memory_order_relaxed);
}
/* In the pool, and not known to be not ready: it may be picked. */
static inline bool endpoint_is_eligible(const struct endpoint *endpoint) {
    return endpoint_rank(endpoint) != ENDPOINT_OUT;
}
/* It may be picked, but only where none is left that is known to be better. */
static inline bool endpoint_is_avoided(const struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    return rank != ENDPOINT_OUT && rank >= ENDPOINT_REFUSED;
}
static inline bool endpoint_is_unchecked(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->unchecked, memory_order_relaxed);
}
static inline bool endpoint_is_ready(const struct endpoint *endpoint) {
    return endpoint_is_eligible(endpoint) && !endpoint_is_unchecked(endpoint);
}
static inline bool endpoint_is_refused(const struct endpoint *endpoint) {
    return endpoint_is_avoided(endpoint) && !endpoint_is_unchecked(endpoint);
}

#endif
