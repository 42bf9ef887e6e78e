/* gRPC as a client: calls of one server, any number in flight over one connection or several. It
 * knows no service: a call is a path and messages, and is told what happened to it.
 *
 *     grpc_client_start_call → grpc_client_send …, grpc_client_half_close
 *                         GRPC_CLIENT_HEAD → GRPC_CLIENT_MESSAGE … → GRPC_CLIENT_END
 *
 * A unary call sends one message, which also ends its side, and is given one. Of a streaming call
 * messages are pulled: grpc_client_read asks for the next one, and no more than a flow-control
 * window is held for a caller who does not. GRPC_CLIENT_END is the last event of every call and
 * comes exactly once, never from within a function of this file; the call is gone when it returns.
 *
 * Connections are made when a call needs them. A call waits for one; when it can't be made, all
 * that wait fail with the reason, and so does every call until the next attempt, which is due after
 * a pause that doubles from attempt to attempt. A connection that the server says goodbye on
 * (GOAWAY) finishes its calls while others begin on a new one.
 *
 * Thread: the client's worker, for everything. */
#ifndef SLUICE_NET_CLIENT_GRPC_GRPC_CLIENT_H
#define SLUICE_NET_CLIENT_GRPC_GRPC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "net/transport/grpc/message.h"
#include "net/transport/tls/peer.h"

struct grpc_client;

enum grpc_client_event {
    GRPC_CLIENT_HEAD,     /* the answer begins: call->fields. Not of one that is only a status */
    GRPC_CLIENT_MESSAGE,  /* call->message is the caller's now */
    GRPC_CLIENT_WRITABLE, /* what was queued has left, see grpc_client_queued_bytes; streaming */
    GRPC_CLIENT_END,      /* call->error, code, trailers */
};

struct grpc_client_call {
    struct arena *arena; /* the caller may use it; freed when the call has ended and no byte of it
                            is on its way any more */
    void *user;
    const struct grpc_field *fields; /* the server's metadata, from GRPC_CLIENT_HEAD on */
    size_t n_fields;
    const struct grpc_field *trailers; /* at GRPC_CLIENT_END */
    size_t n_trailers;
    struct grpc_message *message; /* during GRPC_CLIENT_MESSAGE */
    /* At GRPC_CLIENT_END. ST_OK; ST_REFUSED with the server's own words; else why there is no
     * answer: ST_IO (no connection, or lost), ST_DEADLINE_EXCEEDED, ST_CANCELLED, ST_BAD_ANSWER,
     * ST_BODY_TOO_LARGE, ST_HEADER_TOO_LARGE, ST_OVERLOADED, ST_NO_MEMORY. */
    struct error error;
    int code; /* with ST_OK and ST_REFUSED: grpc-status (codec/protobuf/grpc_status.h); else
                       -1 */
    bool not_processed; /* the server surely did nothing: it may be tried again */
};

typedef void grpc_client_event_cb(struct grpc_client_call *call, enum grpc_client_event event);

/* What a call is to be; read during grpc_client_start_call only. */
struct grpc_client_call_options {
    struct str path;                 /* "/inference.GRPCInferenceService/ModelInfer" */
    const struct grpc_field *fields; /* metadata; values of names in "-bin" are encoded */
    size_t n_fields;                 /* at most GRPC_CLIENT_MAX_FIELDS */
    uint64_t timeout_ns;             /* from now, waiting for a connection included; 0: none */
    grpc_client_event_cb *on_event;
    void *user;
    bool streams;        /* any number of messages each way; else one */
    bool wait_for_ready; /* a connection that can't be made does not end it, only its timeout
                              does */
    /* Of an answer's first bytes (all of it, or up to a few KiB): which offset shall fall on a
     * 64-byte boundary. May be NULL. */
    size_t (*align_at)(struct str beginning);
};

enum { GRPC_CLIENT_MAX_FIELDS = 64 };

/* Begins a call. Returns: ST_BAD_FIELD for metadata that HTTP does not allow, ST_NO_MEMORY. Owns:
 * *out until GRPC_CLIENT_END. */
enum status grpc_client_start_call(struct grpc_client *client,
                                   const struct grpc_client_call_options *options,
                                   struct grpc_client_call **out, struct error *err)
    __attribute__((warn_unused_result));
/* Queues a message of these pieces behind those before. The array is read during the call only. The
 * bytes must stay until `release`, called exactly once, perhaps after GRPC_CLIENT_END; NULL where
 * they are in the call's arena or outlive the client. */
void grpc_client_send(struct grpc_client_call *call, const struct piece *pieces, size_t n_pieces,
                      void (*release)(void *user), void *user);
/* No more messages from this side. Idempotent; a unary call's message says so by itself. */
void grpc_client_half_close(struct grpc_client_call *call);
/* Asks for the next message of a streaming call. One is given for each time. */
void grpc_client_read(struct grpc_client_call *call);
/* Gives it up: ends it with ST_CANCELLED, unless how it ends is known already. */
void grpc_client_cancel(struct grpc_client_call *call);
/* Bytes queued and not yet taken by the connection. */
size_t grpc_client_queued_bytes(const struct grpc_client_call *call);
/* The value of a field; *n (may be NULL) is how many there are. Returns: the first one, or an empty
 * string. */
struct str grpc_client_find(const struct grpc_field *fields, size_t n_fields, const char *name,
                            size_t *n);

/* ---- the client ------------------------------------------------------------------------------ */

/* Zero is the default of each. */
struct grpc_client_limits {
    uint64_t max_message_bytes;       /* of an answer, decompressed; 256 MiB */
    const char *setting;              /* that changes it, for messages; "max_message_bytes" */
    uint64_t max_header_size;         /* of an answer, decoded; 64 KiB */
    uint64_t connect_timeout_ns;      /* looking up the name included; 20 s */
    uint64_t initial_backoff_ns;      /* between two attempts to connect; 100 ms */
    uint64_t max_backoff_ns;          /* 10 s */
    uint32_t stream_window_bytes;     /* 4 MiB */
    uint32_t connection_window_bytes; /* 64 MiB */
    unsigned n_connections;           /* 1 */
};

/* TLS 1.2 or later, with ALPN "h2". */
struct grpc_client_tls {
    struct tls_peer_options files; /* read once, when the client is made */
    const char *server_name;       /* that its certificate must have; NULL: the target's host */
};

/* Read during grpc_client_new only. */
struct grpc_client_options {
    struct worker *worker;
    /* "HOST:PORT" (a name, too), "[v6]:PORT", "unix:/path". */
    struct str target;
    struct str authority;              /* of requests; "": the target, or localhost */
    const struct grpc_client_tls *tls; /* NULL: without */
    struct grpc_client_limits limits;
};

/* Returns: ST_BAD_CONFIG for the target or a file of TLS, ST_NO_MEMORY. Owns: grpc_client_free. */
enum status grpc_client_new(const struct grpc_client_options *options, struct grpc_client **out,
                            struct error *err) __attribute__((warn_unused_result));
/* Ends all calls with ST_CANCELLED, then the connections; `done` when nothing is left of them. */
void grpc_client_stop(struct grpc_client *client, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void grpc_client_free(struct grpc_client *client);
/* Connections that calls can begin on. */
size_t grpc_client_n_connected(const struct grpc_client *client);

#endif
