/* The gRPC client on the event loop: its connections, from the name lookup to the closed handle,
 * and the client that owns them. Internal to net/client/grpc.
 *
 * Deferred work: every event on a connection or a call schedules a run at the end of the event-loop
 * iteration (grpc_client.c). That run starts calls, writes, opens and closes connections, and
 * delivers GRPC_CLIENT_END.
 *
 * Lifetime: a connection is freed in such a run, once its handle is closed and no lookup is in
 * progress.
 *
 * Back pressure: at most one collected output per connection waits for the socket. While it waits,
 * nothing more is collected, so messages stay in the calls' send queues; callers bound those by
 * grpc_client_queued_bytes and GRPC_CLIENT_WRITABLE. */
#ifndef SLUICE_NET_CLIENT_GRPC_CONN_H
#define SLUICE_NET_CLIENT_GRPC_CONN_H

#include <sys/queue.h>
#include <uv.h>

#include "net/client/grpc/grpc_client.h"
#include "net/client/grpc/tls.h"
#include "net/client/grpc_session/session.h"
#include "net/transport/address.h"

struct grpc_client_conn;

enum { GRPC_CLIENT_READ_BYTES = 256 << 10 };

/* The server's address as configured. */
struct grpc_client_target {
    char *text; /* as configured */
    char *host; /* without brackets; "localhost" for a Unix socket */
    char port[8];
    struct address address; /* len 0: the name must be looked up */
};

struct grpc_client {
    struct grpc_client_core core;
    struct worker *worker;
    struct grpc_client_target target;
    char *authority;
    const struct grpc_client_tls *tls; /* NULL: none */
    LIST_HEAD(, grpc_client_conn) conns;
    struct deferred_task deferred;
    struct timer timer;
    struct worker_msg done_msg;
    unsigned n_failures; /* of attempts in a row */
    uint64_t next_attempt_ns;
    struct error why;  /* of the last failed attempt */
    bool has_deferred; /* there is deferred work */
    bool open;         /* from grpc_client_new until `done` is due */
    bool stopping;
    void (*done)(void *user);
    void *user;
    char in[GRPC_CLIENT_READ_BYTES];
};

/* Changed only by set_phase in conn.c. */
enum grpc_client_phase {
    GRPC_CLIENT_RESOLVING,  /* looking up the name */
    GRPC_CLIENT_CONNECTING, /* connecting to one of the addresses */
    GRPC_CLIENT_HANDSHAKE,  /* of TLS */
    GRPC_CLIENT_CONNECTED,  /* calls can start */
    GRPC_CLIENT_CLOSED,     /* waits for the handle and the lookup to close */
};

struct grpc_client_conn {
    struct grpc_client *client;
    LIST_ENTRY(grpc_client_conn) link;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_getaddrinfo_t lookup;
    uv_connect_t connect;
    uv_write_t write;
    struct addrinfo *addresses;
    const struct addrinfo *next_address; /* in `addresses` */
    struct timer timer;                  /* connect timeout */
    struct grpc_client_session session;
    struct grpc_tls tls;
    char *encrypted; /* of `tls`, which are being written */
    /* Output being written, and the position up to which it is sent. */
    struct grpc_output *output;
    size_t piece, at;
    struct error last; /* why the last address could not be reached */
    uint8_t phase;     /* enum grpc_client_phase */
    bool has_handle;   /* the handle is not closed */
    bool resolving;    /* the lookup is in progress */
    bool writing;      /* `write` is in progress */
    bool used;         /* a call was started on it */
};

/* ---- grpc_client.c --------------------------------------------------------------------------- */

void grpc_client_schedule_deferred(struct grpc_client *client);
/* A connection attempt failed, or the connection closed before a call was answered: delays the next
 * attempt. */
void grpc_client_start_backoff(struct grpc_client *client, const struct error *err);

/* ---- conn.c ---------------------------------------------------------------------------------- */

/* Opens a connection and adds it to the client's list. Returns: false when out of memory. */
bool grpc_client_conn_new(struct grpc_client *client) SLUICE_MUST_USE;
/* Closes the connection and ends its calls with `err`. Idempotent. */
void grpc_client_conn_close(struct grpc_client_conn *conn, const struct error *err);
/* Returns: whether it can be freed. */
bool grpc_client_conn_can_free(const struct grpc_client_conn *conn);
void grpc_client_conn_free(struct grpc_client_conn *conn);
/* Returns: whether calls can start on it, now or once it is connected. */
bool grpc_client_conn_is_usable(const struct grpc_client_conn *conn);

/* Writes pending output until the socket is full; closes a connection that is done. */
void grpc_client_conn_flush(struct grpc_client_conn *conn);

#endif
