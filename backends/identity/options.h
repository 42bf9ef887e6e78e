/* The identity backend's parameters in config.pbtxt, read when the model is opened. */
#ifndef SLUICE_IDENTITY_OPTIONS_H
#define SLUICE_IDENTITY_OPTIONS_H

#include <stdint.h>

#include "sluice/backend.h"

struct options {
    uint64_t delay_us;    /* microseconds per batch */
    uint64_t n_responses; /* answers per request, >= 1; the last one is final */
    uint64_t interval_us; /* before each answer but the first, microseconds */
    int by_request;       /* 1: request parameters set the number of answers and a failure */
    int end_apart;        /* 1: no answer is final; a final marker without outputs follows */
    int32_t from_thread;  /* 1: answered by a separate thread after execute returned */
    int32_t echo_params;  /* 1: each answer contains the request's parameters */
    char *fail;           /* every request fails with this text; NULL: none */
};

/* Reads args->params; logs a warning for an unknown key. Returns: SLUICE_OK;
 * SLUICE_INVALID_ARGUMENT with a text that names the key; SLUICE_NO_MEMORY. Owns: on success
 * options->fail, until options_fini. */
sluice_status options_init(struct options *options, const sluice_model_args *args,
                           const sluice_host *host, sluice_error *error);
void options_fini(struct options *options);

#endif
