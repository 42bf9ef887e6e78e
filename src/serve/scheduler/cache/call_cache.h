/* Answers calls from the response cache, for models that enable it (response_cache.h). The key
 * covers everything that a backend's answer may depend on: wanted outputs, parameters, and each
 * input's datatype, shape and bytes. The id and the deadline are not part of it: a model whose
 * answers depend on them must not enable the cache.
 *
 * Thread: the call's worker's. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_CALL_CACHE_H
#define SLUICE_SERVE_SCHEDULER_CACHE_CALL_CACHE_H

#include <stdbool.h>

#include "serve/scheduler/call.h"

/* Looks the call up. On a hit the response is filled and the call is CALL_ANSWERED. Otherwise
 * call->cached is CALL_CACHE_MISS if the lookup was made, and call_cache_store_copy may store the
 * answer. The call is prepared and entered in its version, whose cache is enabled. */
bool call_cache_find(struct call *call) SLUICE_MUST_USE;
/* Stores a copy of the answer of a call that missed, if it succeeded. Payload bytes are copied. */
void call_cache_store_copy(struct call *call);

#endif
