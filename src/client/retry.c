/* Which failures, the wait before the next attempt, and the budget. */
#include "client/retry.h"

#include <string.h>

#include "client/sized_struct.h"
#include "core/base/backoff.h"
#include "core/base/num.h"

enum { DEFAULT_ATTEMPTS = 3, DEFAULT_BUDGET = 10, TENTHS = 10 };

#define DEFAULT_BACKOFF_NS UINT64_C(100000000)
#define DEFAULT_MAX_BACKOFF_NS UINT64_C(10000000000)
#define SECOND_NS UINT64_C(1000000000)

/* ---- the policy ------------------------------------------------------------------------------ */

static enum status copy_statuses(struct arena *arena, const int32_t *from, size_t n,
                                 const char *name, const int32_t **out, struct error *err) {
    if (n > 0 && !from) {
        return error_set(err, ST_BAD_FIELD, "sluice_retry_policy: %s is NULL", name);
    }
    int32_t *copy = arena_calloc(arena, n, sizeof(*copy));
    if (!copy) {
        return error_no_memory(err, "a retry policy");
    }
    if (n > 0) {
        memcpy(copy, from, n * sizeof(*copy));
    }
    *out = copy;
    return ST_OK;
}

enum status client_retry_import(struct arena *arena, const sluice_retry_policy *given,
                                const struct client_retry **out, struct error *err) {
    sluice_retry_policy policy;
    *out = NULL;
    if (!given) {
        return ST_OK;
    }
    struct client_retry *made = arena_calloc(arena, 1, sizeof(*made));
    if (!made) {
        return error_no_memory(err, "a retry policy");
    }
    enum status status =
        sized_struct_read(&policy, sizeof(policy), given, "sluice_retry_policy", err);
    if (status != ST_OK) {
        return status;
    }
    made->max_attempts = policy.max_attempts > 0 ? policy.max_attempts : DEFAULT_ATTEMPTS;
    made->backoff_ns = policy.backoff_ns > 0 ? policy.backoff_ns : DEFAULT_BACKOFF_NS;
    made->max_backoff_ns =
        policy.max_backoff_ns > 0 ? policy.max_backoff_ns : DEFAULT_MAX_BACKOFF_NS;
    made->budget = policy.budget > 0 ? policy.budget : DEFAULT_BUDGET;
    made->may_repeat = policy.may_repeat != 0;
    made->n_http_statuses = policy.n_http_statuses;
    made->n_grpc_statuses = policy.n_grpc_statuses;
    status = copy_statuses(arena, policy.http_statuses, policy.n_http_statuses, "http_statuses",
                           &made->http_statuses, err);
    if (status == ST_OK) {
        status = copy_statuses(arena, policy.grpc_statuses, policy.n_grpc_statuses, "grpc_statuses",
                               &made->grpc_statuses, err);
    }
    *out = made;
    return status;
}

/* ---- the budget ------------------------------------------------------------------------------ */

void client_retry_budget_init(struct client_retry_budget *budget,
                              const struct client_retry *of_client, uint64_t seed) {
    budget->max_tenths = (uint64_t)TENTHS * (of_client ? of_client->budget : DEFAULT_BUDGET);
    budget->tenths = budget->max_tenths;
    budget->prng.state = seed;
}

void client_retry_budget_give(struct client_retry_budget *budget) {
    budget->tenths += budget->tenths < budget->max_tenths;
}

/* ---- the decision ---------------------------------------------------------------------------- */

static bool has_status(const int32_t *statuses, size_t n, int32_t status) {
    for (size_t i = 0; i < n; i++) {
        if (statuses[i] == status) {
            return true;
        }
    }
    return false;
}

static bool fits(const struct client_retry *retry, const struct client_failure *failure) {
    const sluice_client_error *error = failure->error;
    switch (error->status) {
    case SLUICE_CLIENT_SERVER_ERROR: /* by the caller's list, the server did not run it */
        return !failure->may_have_run ||
               has_status(retry->grpc_statuses, retry->n_grpc_statuses, error->grpc_status) ||
               (error->grpc_status == 0 &&
                has_status(retry->http_statuses, retry->n_http_statuses, error->http_status));
    case SLUICE_CLIENT_RESOLVE:
    case SLUICE_CLIENT_CONNECT:
    case SLUICE_CLIENT_TIMEOUT: /* of connecting, or without a byte: the call has time left */
    case SLUICE_CLIENT_CLOSED:
    case SLUICE_CLIENT_PROTOCOL: /* most often the answer ended early */
        return !failure->may_have_run || retry->may_repeat;
    case SLUICE_CLIENT_OK:
    case SLUICE_CLIENT_PENDING:
    case SLUICE_CLIENT_END:
    case SLUICE_CLIENT_INVALID:
    case SLUICE_CLIENT_NO_MEMORY:
    case SLUICE_CLIENT_UNSUPPORTED:
    case SLUICE_CLIENT_CANCELLED:
    case SLUICE_CLIENT_TLS:
    case SLUICE_CLIENT_BUFFER_TOO_SMALL:
    case SLUICE_CLIENT_TOO_LARGE:
    case SLUICE_CLIENT_NOT_FOUND:
        break;
    }
    return false;
}

/* Half of the wait is random, so that many clients do not return together. At least what the
 * server asks for in seconds (RFC 9110, 10.2.3); its other form, a date, is not read. */
static uint64_t wait_ns(const struct client_retry *retry, struct client_retry_budget *budget,
                        const struct client_failure *failure) {
    uint64_t most = backoff_wait(retry->backoff_ns, retry->max_backoff_ns, failure->n_attempts);
    uint64_t wait = most - prng_share(&budget->prng, most / 2), seconds = 0;
    if (failure->retry_after && num_parse_u64(str_of(failure->retry_after), &seconds)) {
        uint64_t asked = seconds < UINT64_MAX / SECOND_NS ? seconds * SECOND_NS : UINT64_MAX;
        wait = asked > wait ? asked : wait;
    }
    return wait;
}

uint64_t client_retry_at_ns(const struct client_retry *retry, struct client_retry_budget *budget,
                            const struct client_failure *failure) {
    if (!retry || failure->n_attempts >= retry->max_attempts || !fits(retry, failure)) {
        return UINT64_MAX;
    }
    uint64_t wait = wait_ns(retry, budget, failure);
    bool has_time =
        failure->now_ns < failure->deadline_ns && wait < failure->deadline_ns - failure->now_ns;
    if (!has_time || budget->tenths < TENTHS) {
        return UINT64_MAX;
    }
    budget->tenths -= TENTHS;
    return failure->now_ns + wait;
}
