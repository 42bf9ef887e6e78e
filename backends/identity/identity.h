/* What the files of the identity backend share: its parameters (options.c), answering a request
 * with its own inputs (echo.c), and answering from a separate thread (async_responder.c). */
#ifndef SLUICE_IDENTITY_IDENTITY_H
#define SLUICE_IDENTITY_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

/* The parameters in config.pbtxt, read when the model is opened. */
struct options {
    uint64_t creation_delay_s; /* seconds that opening the model takes */
    uint64_t delay_us;         /* microseconds per batch */
    uint64_t n_responses;      /* answers per request, >= 1; the last one is final */
    uint64_t interval_us;      /* before each answer but the first, microseconds */
    int by_request;            /* 1: request parameters set the number of answers and a failure */
    int end_apart;             /* 1: no answer is final; a final marker without outputs follows */
    int32_t from_thread;       /* 1: answered by a separate thread after execute returned */
    int32_t echo_params;       /* 1: each answer contains the request's parameters */
    char *fail;                /* every request fails with this text; NULL: none */
};

/* Reads args->params; logs a warning for an unknown key. Returns: SLUICE_OK;
 * SLUICE_INVALID_ARGUMENT with a text that names the key; SLUICE_NO_MEMORY. Owns: on success
 * options->fail, until options_fini. */
sluice_status options_init(struct options *options, const sluice_model_args *args,
                           const sluice_host *host, sluice_error *error);
void options_fini(struct options *options);

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

/* Answers requests from a separate thread after execute returned, as a backend with asynchronous
 * work does. */
struct async_responder;

/* Starts the thread; `host` and `options` must outlive it. Returns: NULL when out of memory or
 * threads. */
struct async_responder *async_responder_start(const sluice_host *host,
                                              const struct options *options);
/* Queues a batch; the thread gives every request its final answer (or this call does, when memory
 * is out). */
void async_responder_push(struct async_responder *responder, const sluice_request *const *requests,
                          size_t n);
/* Answers the queued batches and joins the thread. NULL is allowed. */
void async_responder_stop(struct async_responder *responder);

#endif
