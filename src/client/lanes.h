/* The connections of a client, its lanes: each runs one call at a time, further calls wait in the
 * queue. All sockets are in one epoll set. */
#ifndef SLUICE_CLIENT_LANES_H
#define SLUICE_CLIENT_LANES_H

#include "client/call.h"

/* Makes the epoll set and the first lane. Returns: as client_new. */
enum status client_lanes_init(sluice_client *client, struct error *err) SLUICE_MUST_USE;
/* When all calls are freed. */
void client_lanes_fini(sluice_client *client);
/* Takes a running call off its lane, whose connection is closed, or a queued one out of the
 * queue. */
void client_lanes_cancel(sluice_call *call);
/* Runs what can be run, waiting up to `timeout_ns` for a socket or a deadline, and then the
 * callbacks of the calls that are done. */
void client_lanes_run(sluice_client *client, uint64_t timeout_ns);

#endif
