/* Executes a batch of requests whose shapes may differ (serve/config/batch_layout.h): they are made
 * one joint request for the backend, which sees no difference to the request of one client, and its
 * answer is divided between them. A joint request that fails is executed again in halves, so that a
 * request that does not fit the model fails alone. */
#ifndef SLUICE_SERVE_SCHEDULER_JOINT_JOINT_REQUEST_H
#define SLUICE_SERVE_SCHEDULER_JOINT_JOINT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "serve/scheduler/call_run.h"
#include "serve/scheduler/instance.h"

/* Executes `n` >= 1 calls in CALL_RUNNING of a version with a layout; requests that fill empty rows
 * are among them (padding_request.h). The calls may be freed on return. Thread: that which has
 * claimed the instance. */
void joint_execute(struct instance *instance, struct call *const *calls, size_t n);

/* The host's functions for a joint request: `call` has the role CALL_JOINT. */
void joint_respond(struct call *call, const sluice_response *response);
/* Returns: whether all of its calls are cancelled. */
bool joint_is_cancelled(struct call *call);
/* Returns: the requests of which it is made. */
const sluice_request *const *joint_requests(struct call *call, size_t *n);

#endif
