/* Queue policies from a model's configuration, and what they mean for one request: its priority
 * level, its batch delay and its queue deadline. Pure functions: the caller passes the time and
 * holds the lock. */
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
    size_t default_level;                    /* index of the level for requests that set none */
    uint64_t max_queue_delay_ns; /* how long a request waits for others to join its batch */
    uint64_t limit; /* total waiting requests of the levels without a limit of their own; 0: none */
};

/* Deadlines of one waiting request, on the monotonic clock; UINT64_MAX: never. */
struct queue_deadline {
    size_t level;                 /* of policy.levels */
    bool deprioritized;           /* its queue timeout passed: it is at the end of its level */
    uint64_t batch_wait_until_ns; /* until then it waits for others to join its batch */
    uint64_t deprioritize_ns;     /* when it moves to the end of its level */
    uint64_t expires_ns;          /* when it is removed from the queue */
};

/* `config` is complete; `limit` is the server's queue size limit. Returns: ST_NO_MEMORY. */
enum status queue_policy_init(struct arena *arena, const struct model_config *config,
                              uint64_t limit, struct queue_policy *out,
                              struct error *err) SLUICE_MUST_USE;
/* Called when a request starts to wait: reads its parameters `priority` and `timeout` (KServe's
 * schedule policy extension) and its deadline. Returns: ST_BAD_FIELD when a parameter is not a
 * whole number, ST_DEADLINE_EXCEEDED. */
enum status queue_policy_apply(const struct queue_policy *policy,
                               const struct infer_request *request, uint64_t now_ns,
                               struct queue_deadline *out, struct error *err) SLUICE_MUST_USE;

/* Returns: whether the request expired, so that it must not be executed. */
static inline bool queue_deadline_passed(const struct queue_deadline *queue_deadline,
                                         uint64_t now_ns) {
    return now_ns >= queue_deadline->expires_ns;
}
/* Returns: the next time at which the request is deprioritized or expires. */
static inline uint64_t queue_deadline_next_ns(const struct queue_deadline *queue_deadline) {
    bool deprioritizes = !queue_deadline->deprioritized &&
                         queue_deadline->deprioritize_ns < queue_deadline->expires_ns;
    return deprioritizes ? queue_deadline->deprioritize_ns : queue_deadline->expires_ns;
}

#endif
