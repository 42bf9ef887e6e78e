/* A budget that memory of the scheduler shares with others: with what clients hold
 * (net/transport/budget.h), which this wing does not know. Thread: any. */
#ifndef SLUICE_SERVE_SCHEDULER_SHARED_BUDGET_H
#define SLUICE_SERVE_SCHEDULER_SHARED_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct shared_budget {
    bool (*take)(void *user, uint64_t n_bytes); /* false: nothing was taken. NULL: no limit */
    void (*give)(void *user, uint64_t n_bytes);
    void *user;
};

static inline bool shared_budget_take(const struct shared_budget *budget, uint64_t n_bytes) {
    return !budget->take || budget->take(budget->user, n_bytes);
}

static inline void shared_budget_give(const struct shared_budget *budget, uint64_t n_bytes) {
    if (budget->give) {
        budget->give(budget->user, n_bytes);
    }
}

#endif
