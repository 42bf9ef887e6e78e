/* Runs the calls of a client: the queue, deadlines of queued calls, the wait for sockets, and what
 * the caller is told. Queued calls go to a lane (lanes.h) or to the channel (channel.h). */
#ifndef SLUICE_CLIENT_LOOP_H
#define SLUICE_CLIENT_LOOP_H

#include "client/call.h"

/* Makes the epoll set and the first lane, or the channel. Returns: as client_new. */
enum status client_loop_init(sluice_client *client, struct error *err) SLUICE_MUST_USE;
/* When all calls are freed. */
void client_loop_fini(sluice_client *client);
/* Queues a call. Returns: ST_NO_MEMORY. */
enum status client_loop_start(sluice_call *call, struct error *err) SLUICE_MUST_USE;
/* Stops a call that is under way; its connection is closed, or its stream reset. */
void client_loop_cancel(sluice_call *call);
/* Runs what can be run, waiting up to `timeout_ns` for a socket or a deadline, and then the
 * callbacks of the calls that are done. */
void client_loop_run(sluice_client *client, uint64_t timeout_ns);
/* A step that does not ask which sockets are ready: for a caller that knows that none is, and has
 * started calls. */
void client_loop_flush(sluice_client *client);

/* ---- for lanes.c and channel.c --------------------------------------------------------------- */

/* What to wait for now. */
struct client_watched {
    int socket;         /* the current one, or -1 */
    uint64_t n_sockets; /* tells apart two with the same number */
    /* Not in the set: one that only time can help (the backlog of a Unix socket is full) is
     * reported by epoll all the time. */
    bool is_out;
    uint32_t events;
};

/* Makes the set `epoll_fd` as `wanted` has it, with `ptr` as the data of the socket's events. A
 * closed socket has left the set by itself. Out of memory the socket is in no set until the next
 * call. */
void client_watch_set(struct client_watch *watch, int epoll_fd, const struct client_watched *wanted,
                      void *ptr);

/* Takes the first call out of the queue, which is not empty. */
sluice_call *client_loop_take(sluice_client *client);
/* Queues a running call again. Returns: ST_NO_MEMORY: it is not there. */
enum status client_loop_put_back(sluice_call *call, struct error *err) SLUICE_MUST_USE;
/* A running call has ended, by client_call_finish: it is tried again later, or its caller is to be
 * told. */
void client_loop_end(sluice_call *call);
/* A call that is not queued has failed, for good: its caller is to be told. */
void client_loop_add_done(sluice_call *call);

#endif
