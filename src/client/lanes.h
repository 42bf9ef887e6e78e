/* The connections of a client of HTTP or MIP, its lanes: each runs one call at a time, further
 * calls wait in the queue. */
#ifndef SLUICE_CLIENT_LANES_H
#define SLUICE_CLIENT_LANES_H

#include "client/call.h"

/* Makes the first lane. Returns: as client_new. */
enum status client_lanes_init(sluice_client *client, struct error *err) SLUICE_MUST_USE;
/* When all calls are freed. */
void client_lanes_fini(sluice_client *client);
/* Gives lanes to queued calls, and steps the lanes whose time has come. */
void client_lanes_run(sluice_client *client, uint64_t now_ns);
/* A lane's socket is ready. */
void client_lanes_on_event(sluice_client *client, struct client_lane *lane);
/* Returns: when to run them if no socket is ready before; 0: now; UINT64_MAX: never. */
uint64_t client_lanes_due_ns(const sluice_client *client);
/* Takes a running call off its lane, whose connection is closed. */
void client_lanes_cancel(sluice_call *call);

#endif
