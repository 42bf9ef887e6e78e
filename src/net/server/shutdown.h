/* How the servers of all protocols end: drain, wait for the requests in flight, stop. A protocol's
 * server gives its net_server by http_server_net and the like.
 *
 * Thread: the acceptor's, unless stated otherwise. */
#ifndef SLUICE_NET_SERVER_SHUTDOWN_H
#define SLUICE_NET_SERVER_SHUTDOWN_H

#include <stdint.h>

struct net_server;

/* From now on each connection closes after the current response, or, with gRPC, after GOAWAY and
 * its last call; idle ones close at once, and HTTP responses have `Connection: close`. New
 * connections are still accepted. */
void net_server_drain(struct net_server *server);
/* Returns: the number of requests in flight, of all workers; at least one until all connections
 * were told of a drain, and that is sent. Thread: any. */
uint64_t net_server_in_flight(const struct net_server *server);
/* Closes listeners and connections; `done` runs on the acceptor's thread when every handle is
 * closed and every request has ended (handlers still reply to those they have). The workers' loops
 * must run. Idempotent, never blocks. */
void net_server_stop(struct net_server *server, void (*done)(void *user), void *user);

#endif
