/* What a model's config.pbtxt may say to the identity backend, read once when the model is opened.
 */
#ifndef SLUICE_IDENTITY_OPTIONS_H
#define SLUICE_IDENTITY_OPTIONS_H

#include <stdint.h>

#include "sluice/backend.h"

struct options {
    uint64_t delay_us;    /* how long a batch takes, microseconds */
    uint64_t n_responses; /* answers per request, >= 1; the last one is final */
    uint64_t interval_us; /* before each answer but the first, microseconds */
    int by_request;       /* 1: a request's own parameters say how many, and which fails */
    int end_apart;        /* 1: no answer is final; an end without outputs follows */
    int32_t from_thread; /* 1: answered after execute returned, by a thread of the instance's own */
    int32_t echo_params; /* 1: the request's parameters come back with each answer */
    char *fail;          /* the sentence every request fails with; NULL: none fails */
};

/* Reads args->params; a key it does not know is a warning in the log. Returns: SLUICE_OK;
 * SLUICE_INVALID_ARGUMENT with a sentence that names the key; SLUICE_NO_MEMORY.
 * Owns: on success options->fail, until options_fini. */
sluice_status options_init(struct options *options, const sluice_model_args *args,
                           const sluice_host *host, sluice_error *error);
void options_fini(struct options *options);

#endif
