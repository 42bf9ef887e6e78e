/* Answers requests from a separate thread after execute returned, as a backend with asynchronous
 * work does. */
#ifndef SLUICE_IDENTITY_ASYNC_RESPONDER_H
#define SLUICE_IDENTITY_ASYNC_RESPONDER_H

#include <stddef.h>

#include "identity/options.h"
#include "sluice/backend.h"

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
