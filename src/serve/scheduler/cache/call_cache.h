/* Answers calls from the response cache, for models that enable it (response_cache.h). The key
 * covers everything that a backend's answer may depend on: wanted outputs, parameters, and each
 * input's datatype, shape and bytes. The id and the deadline are not part of it: a model whose
 * answers depend on them must not enable the cache. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_CALL_CACHE_H
#define SLUICE_SERVE_SCHEDULER_CACHE_CALL_CACHE_H

#include <stdbool.h>

#include "serve/scheduler/call_run.h"

/* Makes the key of the call, which is prepared and entered in its version, whose cache is enabled.
 * call->cached is CALL_CACHE_MISS then, CALL_NOT_CACHED where that fails. Thread: any. */
void call_cache_hash(struct call *call);
/* Looks the call up, after call_cache_hash. On a hit the response is filled and the call is
 * CALL_ANSWERED. After a miss call_cache_store_copy may store the answer. Thread: the call's
 * worker's. */
bool call_cache_find(struct call *call) SLUICE_MUST_USE;
/* Stores a copy of the answer of a call that missed, if it succeeded; once. Payload bytes are
 * copied. Thread: that which completes the call. */
void call_cache_store_copy(struct call *call);

#endif
