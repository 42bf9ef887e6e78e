/* The retry policy of a client or a call: which failures are tried again, when, and how often.
 *
 * Budget: each retry takes a token of the client's, each call that succeeds gives a tenth of one
 * back. Without a token no call is tried again: a server that is down gets few requests more than
 * without a policy (gRPC's retry throttling). */
#ifndef SLUICE_CLIENT_RETRY_H
#define SLUICE_CLIENT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/random.h"
#include "core/base/status.h"
#include "sluice/client.h"

/* A policy with its defaults. */
struct client_retry {
    uint32_t max_attempts; /* the first included */
    uint64_t backoff_ns, max_backoff_ns;
    const int32_t *http_statuses, *grpc_statuses;
    size_t n_http_statuses, n_grpc_statuses;
    bool may_repeat;
    uint32_t budget;
};

/* The tokens of a client. */
struct client_retry_budget {
    uint64_t tenths, max_tenths;
    struct prng prng; /* of the random part of waits */
};

/* A call that has failed. */
struct client_failure {
    const sluice_client_error *error;
    bool may_have_run;       /* in this attempt */
    const char *retry_after; /* of the answer; NULL: none */
    uint32_t n_attempts;     /* made so far */
    uint64_t now_ns, deadline_ns;
};

/* Checks and copies a policy; NULL: *out is NULL. Returns: ST_BAD_FIELD. Owns: in `arena`. */
enum status client_retry_import(struct arena *arena, const sluice_retry_policy *given,
                                const struct client_retry **out, struct error *err) SLUICE_MUST_USE;

/* `of_client` may be NULL. */
void client_retry_budget_init(struct client_retry_budget *budget,
                              const struct client_retry *of_client, uint64_t seed);
/* A call has succeeded. */
void client_retry_budget_give(struct client_retry_budget *budget);

/* Decides whether a failed call is tried again. Returns: when; UINT64_MAX: it is not. Takes a
 * token. */
uint64_t client_retry_at_ns(const struct client_retry *retry, struct client_retry_budget *budget,
                            const struct client_failure *failure);

#endif
