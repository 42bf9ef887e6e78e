/* Answers given after execute has returned, by a thread of the instance's own: what a backend does
 * that hands its work to something asynchronous. */
#ifndef SLUICE_IDENTITY_LATER_H
#define SLUICE_IDENTITY_LATER_H

#include <stddef.h>

#include "identity/options.h"
#include "sluice/backend.h"

struct later;

/* Starts the thread; `host` and `options` must outlive it. Returns: NULL when there is no memory or
 * no thread to be had. */
struct later *later_start(const sluice_host *host, const struct options *options);
/* Takes a batch; every request gets its final answer from the thread (or at once, from here, when
 * there is no memory to keep it). */
void later_take(struct later *later, const sluice_request *const *requests, size_t n);
/* Waits for the thread, which first answers what it has. NULL is allowed. */
void later_stop(struct later *later);

#endif
