/* Answers given after execute has returned, by a thread of the instance's own: what a backend does
 * that hands its work to something asynchronous. */
#ifndef SLUICE_IDENTITY_LATER_H
#define SLUICE_IDENTITY_LATER_H

#include <stddef.h>

#include "identity/options.h"
#include "sluice/backend.h"

struct async_responder;

/* Starts the thread; `host` and `options` must outlive it. Returns: NULL when there is no memory or
 * no thread to be had. */
struct async_responder *async_responder_start(const sluice_host *host,
                                              const struct options *options);
/* Takes a batch; every request gets its final answer from the thread (or at once, from here, when
 * there is no memory to keep it). */
void async_responder_push(struct async_responder *responder, const sluice_request *const *requests,
                          size_t n);
/* Waits for the thread, which first answers what it has. NULL is allowed. */
void async_responder_stop(struct async_responder *responder);

#endif
