/* Calls that are answered from the response cache, of models whose configuration asks for it
 * (response_cache.h). What a call is known by is all that a backend gets to see of it and may
 * answer by: outputs wanted, parameters, and of each input datatype, shape and bytes. Its id and
 * its deadline are not: a model whose answers depend on these must not have its answers kept.
 *
 * Thread: the call's worker's. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_CALL_CACHE_H
#define SLUICE_SERVE_SCHEDULER_CACHE_CALL_CACHE_H

#include <stdbool.h>

#include "serve/scheduler/call.h"

/* Fills in the answer where it is known: then the call is CALL_ANSWERED. Otherwise call->cached
 * says whether it was looked for, and call_cache_store_copy may keep what comes. The version, whose
 * cache is on, was entered, and the call prepared. */
bool call_cache_find(struct call *call) __attribute__((warn_unused_result));
/* Keeps the answer of a call that was looked for and not found, if it is one: payload bytes are
 * copied. */
void call_cache_store_copy(struct call *call);

#endif
