/* What a model's configuration says of requests that wait, and what it means for one of them: its
 * priority, how long it waits for company, and when its time is over. Nothing here reads a clock or
 * takes a lock. */
#ifndef SLUICE_SERVE_CONFIG_QUEUE_POLICY_H
#define SLUICE_SERVE_CONFIG_QUEUE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/infer.h"
#include "serve/config/config.h"

struct queue_policy {
    const struct model_queue_policy *levels; /* the highest priority first */
    size_t n_levels;                         /* at least 1 */
    size_t default_level;                    /* of requests that do not choose; an index */
    uint64_t max_queue_delay_ns;             /* how long a request waits for company */
    uint64_t limit; /* requests waiting in all, for levels without a limit of their own; 0: none */
};

/* How one request waits. Times are on the monotonic clock; UINT64_MAX: never. */
struct queue_deadline {
    size_t level;                 /* of policy.levels */
    bool deprioritized;           /* its time was over: all others of its level go before it */
    uint64_t batch_wait_until_ns; /* until then it waits for others to share its batch */
    uint64_t deprioritize_ns;     /* when it lets the others pass */
    uint64_t expires_ns;          /* when it is dropped */
};

/* `config` is completed; `limit` is the server's own. Returns: ST_NO_MEMORY. */
enum status queue_policy_init(struct arena *arena, const struct model_config *config,
                              uint64_t limit, struct queue_policy *out, struct error *err)
    __attribute__((warn_unused_result));
/* For a request that begins to wait now: reads its parameters `priority` and `timeout` (KServe's
 * schedule policy extension) and its deadline.
 * Returns: ST_BAD_FIELD when a parameter is no whole number, ST_DEADLINE_EXCEEDED. */
enum status queue_policy_apply(const struct queue_policy *policy,
                               const struct infer_request *request, uint64_t now_ns,
                               struct queue_deadline *out, struct error *err)
    __attribute__((warn_unused_result));

/* Is its time over? Then it is not executed any more. */
static inline bool queue_deadline_passed(const struct queue_deadline *queue_deadline,
                                         uint64_t now_ns) {
    return now_ns >= queue_deadline->expires_ns;
}
/* When something is to be done about it: it yields, or it is dropped. */
static inline uint64_t queue_deadline_next_ns(const struct queue_deadline *queue_deadline) {
    bool deprioritizes = !queue_deadline->deprioritized &&
                         queue_deadline->deprioritize_ns < queue_deadline->expires_ns;
    return deprioritizes ? queue_deadline->deprioritize_ns : queue_deadline->expires_ns;
}

#endif
