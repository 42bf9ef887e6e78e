/* Padding requests: with the strategy "direct" each sequence has a fixed row, so a row without a
 * request that lies before a used one is filled with a request of zeros whose control inputs mark
 * it as not ready. Its answer is dropped. */
#ifndef SLUICE_SERVE_SCHEDULER_PADDING_REQUEST_H
#define SLUICE_SERVE_SCHEDULER_PADDING_REQUEST_H

#include <stddef.h>

#include "serve/scheduler/call_run.h"

/* Replaces each NULL in the batch by a padding request shaped like the last call, which is not
 * NULL. They hold the version until they are answered. Returns: ST_NO_MEMORY: none was added.
 * Thread: any. */
enum status padding_requests_add(struct model_version *version, struct call **batch, size_t n,
                                 struct error *err) SLUICE_MUST_USE;
/* Frees it after its final answer. Thread: any. */
void padding_request_free(struct call *padding);

#endif
