/* Calls with several answers, which the caller takes one after the other (sluice_call_next):
 * ModelStreamInfer over gRPC, where it also sends several requests, and generate_stream over HTTP.
 * What the caller does not take stays with the server: at most one answer of gRPC waits here, and
 * of HTTP what one step receives. */
#ifndef SLUICE_CLIENT_STREAM_H
#define SLUICE_CLIENT_STREAM_H

#include "client/call.h"

/* gRPC: an answer has arrived; call->grpc.message has it. */
void client_stream_on_message(sluice_call *call);
/* HTTP: bytes may have arrived. Returns: ST_BODY_TOO_LARGE for an event that is over the limit,
 * ST_BAD_ANSWER, ST_NO_MEMORY: the call ends, without client_stream_on_end. */
enum status client_stream_on_body(sluice_call *call, struct error *err) SLUICE_MUST_USE;
/* HTTP: the exchange has ended; what has arrived before can still be taken. Returns:
 * ST_BODY_TOO_LARGE, ST_NO_MEMORY. */
enum status client_stream_on_end(sluice_call *call, struct error *err) SLUICE_MUST_USE;
/* Are there answers that the caller has not taken? */
bool client_stream_has_next(const sluice_call *call);
/* Takes and drops all answers, until the call has ended. */
void client_stream_drain(sluice_call *call);
/* Runs the callbacks on_answer of the calls that have new answers. */
void client_stream_run_callbacks(sluice_client *client);
/* Drops the answers that the caller has not taken; on_answer is not called for them. */
void client_stream_drop(sluice_call *call);
/* Frees what a call has of its answers. */
void client_stream_free(sluice_call *call);

#endif
