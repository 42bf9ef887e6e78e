/* The gRPC client on the loop: what a client has besides its core, and one of its connections from
 * looking up a name to the closed handle. For the grpc_client*.c files of this room only.
 *
 * What is done when: whatever happens to a connection or a call asks for a turn, which ends the
 * iteration of the loop (grpc_client.c). The turn begins calls, writes, opens and closes
 * connections, and tells callers of the end of their calls.
 *
 * Who may free what: a connection is freed in a turn, when its handle is closed and no lookup is
 * under way. */
#ifndef SLUICE_NET_CLIENT_GRPC_CONN_H
#define SLUICE_NET_CLIENT_GRPC_CONN_H

#include <uv.h>

#include "net/client/grpc/session.h"
#include "net/transport/address.h"
#include "net/transport/tls/session.h"

struct grpc_client_conn;

enum {
    GRPC_CLIENT_READ_BYTES = 256 << 10,
    GRPC_CLIENT_ENCRYPTED_BYTES = 4 * TLS_ENCRYPTED_RECORD_MAX_BYTES, /* four full records, at a
                                                                         time */
};

/* Where to. */
struct grpc_client_target {
    char *text; /* as it was given */
    char *host; /* without brackets; of a Unix socket "localhost" */
    char port[8];
    struct address address; /* len 0: the name has to be looked up */
};

/* For TLS; nothing stays in these buffers when a callback returns. */
struct grpc_client_tls_state {
    struct tls_context *context;
    char *server_name;
    char decrypted[GRPC_CLIENT_READ_BYTES];
    char encrypted[GRPC_CLIENT_ENCRYPTED_BYTES];
    char gathered[TLS_RECORD_BYTES]; /* small pieces that become one record */
};

struct grpc_client {
    struct grpc_client_core core;
    struct worker *worker;
    struct grpc_client_target target;
    char *authority;
    struct grpc_client_tls_state *tls; /* NULL: without */
    struct grpc_client_conn *conns;
    uv_check_t check; /* ends a turn */
    uv_idle_t idle;   /* makes sure that it ends at once */
    struct timer timer;
    unsigned n_handles;
    uint64_t backoff_ns; /* the last one; 0: what was tried worked */
    uint64_t next_attempt_ns;
    struct error why;  /* the last attempt did not work */
    bool idle_active;  /* a turn was asked for */
    bool has_deferred; /* and has something to do */
    bool stopping;
    void (*done)(void *user);
    void *user;
    char in[GRPC_CLIENT_READ_BYTES];
};

/* conn.c's setter is the only one that changes it. */
enum grpc_client_phase {
    GRPC_CLIENT_RESOLVING,     /* for the addresses of a name */
    GRPC_CLIENT_CONNECTING,    /* to one of them */
    GRPC_CLIENT_TLS_HANDSHAKE, /* TLS: hands */
    GRPC_CLIENT_CONNECTED,     /* calls can begin */
    GRPC_CLIENT_CLOSED,        /* only the handle and the lookup are still to end */
};

struct grpc_client_conn {
    struct grpc_client *client;
    struct grpc_client_conn *next;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_getaddrinfo_t lookup;
    uv_connect_t connect;
    uv_write_t write; /* of a connection without TLS */
    struct addrinfo *addresses;
    const struct addrinfo *next_address; /* of those */
    struct timer timer;                  /* it was not made in time */
    struct grpc_client_session session;
    struct tls_session tls;
    /* What is being written, up to where it has left (or, over TLS, was sealed). */
    struct grpc_output *output;
    size_t piece, at;
    size_t n_encrypted_writes; /* pieces of TLS on their way to the socket */
    struct error last;         /* why an address could not be reached */
    uint8_t phase;             /* enum grpc_client_phase */
    bool has_handle;           /* it is not closed */
    bool resolving;            /* the lookup is not over */
    bool writing;              /* `write` is on its way */
    bool used;                 /* a call was begun */
};

/* ---- grpc_client.c --------------------------------------------------------------------------- */

void grpc_client_schedule_deferred(struct grpc_client *client);
/* It could not be made, or ended before a call was answered. */
void grpc_client_start_backoff(struct grpc_client *client, const struct error *err);

/* ---- conn.c ---------------------------------------------------------------------------------- */

/* Begins one, in the client's list. Returns: false when out of memory. */
bool grpc_client_conn_new(struct grpc_client *client) __attribute__((warn_unused_result));
/* Ends it, and its calls with `err`. Idempotent. */
void grpc_client_conn_close(struct grpc_client_conn *conn, const struct error *err);
/* May it be freed? */
bool grpc_client_conn_can_free(const struct grpc_client_conn *conn);
void grpc_client_conn_free(struct grpc_client_conn *conn);
/* Calls can begin on it, or will once it is made. */
bool grpc_client_conn_is_usable(const struct grpc_client_conn *conn);
/* TLS has shaken hands, or there is none: calls can begin. */
void grpc_client_conn_ready(struct grpc_client_conn *conn);
/* "HOST:PORT: why" */
void grpc_client_conn_fail(struct grpc_client_conn *conn, const char *why);

/* Writes what there is to say, as far as the socket takes it; closes a connection that is over. */
void grpc_client_conn_flush(struct grpc_client_conn *conn);
/* The bytes of `output` from where the write is: moves on by that many. */
void grpc_client_conn_advance(struct grpc_client_conn *conn, size_t n_bytes);

/* ---- tls.c ----------------------------------------------------------------------- */

/* Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: grpc_client_tls_free, after the connections. */
enum status grpc_client_tls_new(struct grpc_client *client, const struct grpc_client_tls *options,
                                struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed in client->tls. */
void grpc_client_tls_free(struct grpc_client *client);
/* The socket is connected: begins to shake hands. */
void grpc_client_tls_start_handshake(struct grpc_client_conn *conn);
/* Bytes from the socket, all of them. */
void grpc_client_tls_receive(struct grpc_client_conn *conn, struct str encrypted);
/* Seals and sends what of the output is left, as far as the socket takes it. */
void grpc_client_tls_push(struct grpc_client_conn *conn);
/* Says goodbye, if it can be said. */
void grpc_client_tls_send_close_notify(struct grpc_client_conn *conn);

#endif
