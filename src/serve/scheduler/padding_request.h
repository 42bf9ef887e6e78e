/* Fillers: where a sequence's row of a batch has no request, but one behind it has, something must
 * stand in its place, so that the model finds each sequence in its own row. A filler is a request
 * of one row of zeros whose controls say that it is none; what is answered to it is thrown away. */
#ifndef SLUICE_SERVE_SCHEDULER_PADDING_REQUEST_H
#define SLUICE_SERVE_SCHEDULER_PADDING_REQUEST_H

#include <stddef.h>

#include "serve/scheduler/call.h"

/* Puts a filler for each NULL in the batch, like its last call, which is none. They hold the
 * version until they are answered. Returns: ST_NO_MEMORY: none was put. Thread: any. */
enum status padding_requests_add(struct model_version *version, struct call **batch, size_t n,
                                 struct error *err) __attribute__((warn_unused_result));
/* The last answer to it came. Thread: any. */
void padding_request_free(struct call *padding);

#endif
