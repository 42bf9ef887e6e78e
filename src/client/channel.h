/* The gRPC connections of a client: one on which calls start as streams, opened when a call needs
 * it, and those before it that end (GOAWAY) and finish their calls. HTTP/2 is
 * net/client/grpc_session's; the sockets and TLS are connection.h's.
 *
 * A call that the server certainly did not process, because it refused the stream or passed over it
 * in GOAWAY, is started once more. When a connection can't be made, all waiting calls fail with the
 * reason; the next call tries again.
 *
 * Lifetimes: the bytes of a request are its caller's. When a call ends before all of them are sent,
 * what is promised to the socket is copied.
 *
 * Back pressure: nothing is collected while the socket does not take what was. */
#ifndef SLUICE_CLIENT_CHANNEL_H
#define SLUICE_CLIENT_CHANNEL_H

#include "client/call.h"

struct client_channel;

/* Returns: ST_NO_MEMORY; ST_BAD_CONFIG for a transport that lacks a function. Owns:
 * client_channel_free. */
enum status client_channel_new(sluice_client *client, struct client_channel **out,
                               struct error *err) SLUICE_MUST_USE;
/* When all calls are freed. NULL is allowed. */
void client_channel_free(struct client_channel *channel);
/* Starts the queued calls, and makes all progress that is possible without waiting. */
void client_channel_run(struct client_channel *channel);
/* A connection's socket is ready; `data` is that of the event. */
void client_channel_on_event(void *data);
/* Returns: when to run it if no socket is ready before; 0: now; UINT64_MAX: never. */
uint64_t client_channel_due_ns(const struct client_channel *channel);
/* Makes streams of the queued calls; they are sent in the next run. */
void client_channel_start_queued(struct client_channel *channel);
/* Of a running call: send a message (which is freed), send no more, ask for the next answer. */
void client_channel_send(sluice_call *call, struct piece message);
void client_channel_half_close(sluice_call *call);
void client_channel_read(sluice_call *call);
/* Resets a running call. Sets call->sent. */
void client_channel_cancel(sluice_call *call);

#endif
