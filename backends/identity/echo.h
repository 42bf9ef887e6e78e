/* Answering a request with its own inputs. */
#ifndef SLUICE_IDENTITY_ECHO_H
#define SLUICE_IDENTITY_ECHO_H

#include <stddef.h>

#include "identity/options.h"
#include "sluice/backend.h"

/* Room for the outputs of one answer, kept between requests; {0} to begin with. One thread at a
 * time. */
struct scratch {
    sluice_output *outputs;
    size_t n_outputs;
};

void scratch_fini(struct scratch *scratch);

/* Waits as long as the options say (less when nobody waits for any of the requests any more), then
 * answers each of the `n` requests finally. */
void echo_batch(const sluice_host *host, const struct options *options, struct scratch *scratch,
                const sluice_request *const *requests, size_t n);

#endif
