/* Answers a request with its own inputs. */
#ifndef SLUICE_IDENTITY_ECHO_H
#define SLUICE_IDENTITY_ECHO_H

#include <stddef.h>

#include "identity/options.h"
#include "sluice/backend.h"

/* Memory for the outputs of one answer, reused between requests; initialized with {0}. One thread
 * at a time. */
struct scratch {
    sluice_output *outputs;
    size_t n_outputs;
};

void scratch_fini(struct scratch *scratch);

/* Waits for the configured delay (shorter when all requests are cancelled), then gives each of the
 * `n` requests its final answer. */
void echo_batch(const sluice_host *host, const struct options *options, struct scratch *scratch,
                const sluice_request *const *requests, size_t n);

#endif
