/* An endpoint: a model server that requests can be sent to. It is one object while its address is
 * in the pool or a request is in flight to it; it keeps its in-flight count and state across
 * updates of the pool.
 *
 * Thread: the atomics are written under the pool's lock and read by any thread that holds a
 * snapshot with the endpoint, or a ticket for it; the fields below them are the pool's. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_ENDPOINT_H
#define SLUICE_PICK_POOL_ENDPOINT_ENDPOINT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "pick/pool/endpoint/address.h"
#include "pick/pool/prefix/media.h"
#include "pick/pool/prefix/table.h"
#include "pick/pool/profile/ranking.h"

/* The rank that picks compare; lower is better:
 *     requests in flight, with debts         ready
 *     the same + ENDPOINT_LIMITED            its window is used up (struct endpoint_window)
 *     the same + ENDPOINT_REFUSED            avoided (enum endpoint_avoidance), or not checked yet
 *     ENDPOINT_OUT                           not ready, or no longer in the pool */
#define ENDPOINT_LIMITED UINT32_C(0x40000000)
#define ENDPOINT_REFUSED UINT32_C(0x80000000)
#define ENDPOINT_OUT UINT32_MAX

/* Why an endpoint is picked only where no better one is left, until its next trial or a proof that
 * it serves (pick/pool/window.c). */
enum endpoint_avoidance {
    ENDPOINT_NOT_AVOIDED,
    ENDPOINT_CONNECTION_REFUSED, /* for spec->refused_ns at most */
    ENDPOINT_EJECTED,            /* by outlier detection (pick/pool/outlier.c) */
    ENDPOINT_SHEDDING,           /* it sheds load (429, 503) with no other request of ours there */
    N_ENDPOINT_AVOIDANCES,
};

/* How many requests an endpoint may have in flight before others are preferred. `size` 0, as in
 * zeroed memory: any number. */
struct endpoint_window {
    _Atomic uint32_t size;
    uint32_t threshold;  /* up to this size each answer makes it larger by one, beyond it each
                            `size` answers; 0: none */
    uint32_t n_grown;    /* answers beyond the threshold since it grew */
    uint32_t n_older;    /* requests in flight from before the trial, not counted against it */
    uint32_t n_reserved; /* slots reserved for notified waiters, not counted against it */
};

/* What outlier detection knows of an endpoint. The atomics are changed without a lock by responses
 * without an error, which do not need to be counted exactly. */
struct endpoint_outliers {
    _Atomic uint32_t n_consecutive_5xx, n_consecutive_gateway_failures;
    _Atomic uint32_t n_responses; /* since window_start_ns; under the lock it is reset */
    _Atomic bool on_trial;        /* after an ejection, until the first answer: a failure ejects */
    uint32_t n_failures;          /* since window_start_ns */
    uint64_t window_start_ns;     /* the interval began */
    uint32_t n_ejections;         /* in a row; one less for each interval without one */
    uint64_t ejected_ns;          /* the last ejection began */
    uint64_t readmitted_ns;       /* the last ejection ended */
    uint32_t n_checks;            /* health checks that succeeded since ejected_ns */
    uint32_t n_failed_proofs;     /* ejections in a row that such checks ended too early */
};

/* Picks of an endpoint by the model that it is asked for, for metrics. Further models than there
 * are places for are counted together. Thread: any, without a lock. */
enum { ENDPOINT_MAX_TARGETS = 16 };
struct endpoint_targets {
    _Atomic uint64_t hashes[ENDPOINT_MAX_TARGETS]; /* of the model's name; 0: free */
    _Atomic uint64_t n_picked[ENDPOINT_MAX_TARGETS];
    _Atomic uint64_t n_others;
};

/* What the endpoint contributes to the pool's saturation (pick/pool/flow/saturation.h). */
struct endpoint_share {
    int64_t amount;
    uint8_t stages;
    bool is_member, is_counted;
};

struct endpoint {
    alignas(64) struct ranked ranked; /* first: a struct ranked is cast to its endpoint */
    _Atomic uint32_t rank;
    _Atomic bool unchecked;     /* in the pool, not checked yet, and no connection was refused */
    _Atomic uint8_t avoidance;  /* enum endpoint_avoidance; but ENDPOINT_NOT_AVOIDED: in the pool's
                                   list `avoided` */
    _Atomic uint32_t in_flight; /* requests sent there that have not ended */
    _Atomic uint32_t debt;      /* failed requests that count as if they were still in flight */
    _Atomic uint64_t n_picked;  /* total */
    _Atomic uint64_t n_tokens;  /* estimated tokens of the requests in flight */
    _Atomic uint32_t last_cold_request; /* of the requests whose prefix no endpoint had: the last
                                           one sent there; 0: none */
    /* Recent response times in seconds, and when the last one was measured; 0: none was. */
    _Atomic float first_byte_s, answer_s;
    _Atomic uint64_t answered_ns;
    uint32_t host; /* its host number in the pool's prefix table; 0: none */

    bool in_pool;              /* in the pool's newest snapshot */
    uint32_t member;           /* its index in that snapshot */
    uint16_t profiles;         /* as of the member */
    bool known;                /* readiness was checked, or is not checked in this pool */
    bool ready;                /* with `known`: the check's result; true without checks */
    uint64_t trial_ns;         /* avoided or on trial: when it may be tried next */
    uint64_t avoided_until_ns; /* avoided: when it is tried in any case */
    uint64_t n_picks_before;   /* the pool's picks when the last trial or the avoidance began */
    bool is_tried;             /* on trial, and not answered yet: in the pool's list `tried` */
    TAILQ_ENTRY(endpoint) avoided_link; /* in the pool's list `avoided` or `tried` */
    bool is_indebted;                   /* in the pool's list `indebted` */
    uint32_t n_bad_in_row; /* failures that made debts since the last answer, within a bound */
    uint32_t debt_of_rows; /* what these made beyond one each */
    TAILQ_ENTRY(endpoint) indebted_link;
    struct endpoint_window window;
    struct endpoint_outliers outliers;
    struct endpoint_share share;
    uint64_t
        stalled_until_ns; /* no waiter is notified for it until then: the last one could not use it
                             although it had capacity; 0: not stalled */
    uint64_t unwanted_epoch;      /* the pool's queue_epoch when no waiter could use it */
    _Atomic uint32_t n_snapshots; /* snapshots that contain it; without any, only tickets refer to
                                     it */

    struct endpoint_address address;
    uint32_t text_len;
    char text[ENDPOINT_TEXT_BYTES];     /* "10.0.0.1:8000", NUL-terminated */
    _Atomic uint64_t n_scrape_failures; /* failed scrapes; written by the scraper */
    struct endpoint_targets targets;
    struct media_counts media_hits[PREFIX_MAX_INDEXES]; /* under the lock; read by any thread */
};

/* Counts a pick for the model with this hash, which is not 0. */
static inline void endpoint_targets_add(struct endpoint_targets *targets, uint64_t hash) {
    for (size_t i = 0; i < ENDPOINT_MAX_TARGETS; i++) {
        uint64_t found = atomic_load_explicit(&targets->hashes[i], memory_order_relaxed);
        if (found == hash ||
            (found == 0 && (atomic_compare_exchange_strong(&targets->hashes[i], &found, hash) ||
                            found == hash))) {
            atomic_fetch_add_explicit(&targets->n_picked[i], 1, memory_order_relaxed);
            return;
        }
    }
    atomic_fetch_add_explicit(&targets->n_others, 1, memory_order_relaxed);
}

static inline struct str endpoint_text(const struct endpoint *endpoint) {
    return str_make(endpoint->text, endpoint->text_len);
}
static inline uint32_t endpoint_rank(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->rank, memory_order_relaxed);
}
static inline uint32_t endpoint_in_flight(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->in_flight, memory_order_relaxed);
}
static inline uint32_t endpoint_debt(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->debt, memory_order_relaxed);
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
/* In the pool and not known to be unready: it may be picked. */
static inline bool endpoint_is_eligible(const struct endpoint *endpoint) {
    return endpoint_rank(endpoint) != ENDPOINT_OUT;
}
/* It may be picked only where no better endpoint is left. */
static inline bool endpoint_is_avoided(const struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    return rank != ENDPOINT_OUT && rank >= ENDPOINT_LIMITED;
}
static inline bool endpoint_is_unchecked(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->unchecked, memory_order_relaxed);
}
static inline bool endpoint_is_ready(const struct endpoint *endpoint) {
    return endpoint_is_eligible(endpoint) && !endpoint_is_unchecked(endpoint);
}
static inline enum endpoint_avoidance endpoint_avoidance(const struct endpoint *endpoint) {
    return (enum endpoint_avoidance)atomic_load_explicit(&endpoint->avoidance,
                                                         memory_order_relaxed);
}
static inline bool endpoint_is_ejected(const struct endpoint *endpoint) {
    return endpoint_is_avoided(endpoint) && endpoint_avoidance(endpoint) == ENDPOINT_EJECTED;
}
/* Server errors since the last answer, as far as they counted. */
static inline uint32_t endpoint_n_consecutive_5xx(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->outliers.n_consecutive_5xx, memory_order_relaxed);
}
static inline bool endpoint_is_refused(const struct endpoint *endpoint) {
    return endpoint_is_avoided(endpoint) &&
           endpoint_avoidance(endpoint) == ENDPOINT_CONNECTION_REFUSED;
}
static inline bool endpoint_is_shedding(const struct endpoint *endpoint) {
    return endpoint_is_avoided(endpoint) && endpoint_avoidance(endpoint) == ENDPOINT_SHEDDING;
}
/* 0: any number of requests in flight. */
static inline uint32_t endpoint_window_size(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->window.size, memory_order_relaxed);
}

#endif
