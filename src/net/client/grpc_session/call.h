/* A gRPC call of a client, as its caller sees it: a path, metadata and messages; its events go to
 * one callback. session.h runs it on a connection.
 *
 *     start → grpc_client_send …, grpc_client_half_close
 *             GRPC_CLIENT_HEAD → GRPC_CLIENT_MESSAGE … → GRPC_CLIENT_END
 *
 * A unary call sends one message, which half-closes it, and receives one. The messages of a
 * streaming call are pulled with grpc_client_read. GRPC_CLIENT_END is the last event of every call,
 * delivered exactly once and never from within a function of this header; the call is invalid when
 * it returns.
 *
 * Back pressure: a server that sends faster than the caller reads waits for the caller, at most one
 * flow-control window per call is buffered. A caller that sends faster than the server reads is not
 * blocked: its messages are queued, and it must watch grpc_client_queued_bytes.
 *
 * Thread: one at a time, for all calls of a client. */
#ifndef SLUICE_NET_CLIENT_GRPC_SESSION_CALL_H
#define SLUICE_NET_CLIENT_GRPC_SESSION_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/piece.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "net/transport/grpc/message.h"

enum grpc_client_event {
    /* The response head arrived: call->fields. Not for a response without a separate head. */
    GRPC_CLIENT_HEAD,
    GRPC_CLIENT_MESSAGE, /* ownership of call->message passes to the caller */
    /* All queued messages are sent, see grpc_client_queued_bytes; streaming calls only. */
    GRPC_CLIENT_WRITABLE,
    GRPC_CLIENT_END, /* call->error, code, trailers */
};

struct grpc_client_call {
    /* For the caller's use too; freed once the call has ended and none of its bytes are queued for
     * the socket. */
    struct arena *arena;
    void *user;
    const struct grpc_field *fields; /* the server's metadata, from GRPC_CLIENT_HEAD on */
    size_t n_fields;
    const struct grpc_field *trailers; /* at GRPC_CLIENT_END */
    size_t n_trailers;
    struct grpc_message *message; /* during GRPC_CLIENT_MESSAGE */
    /* At GRPC_CLIENT_END. ST_OK; ST_REFUSED with the server's message; else why there is no
     * response: ST_IO (no connection, or connection lost), ST_DEADLINE_EXCEEDED, ST_CANCELLED,
     * ST_BAD_ANSWER, ST_BODY_TOO_LARGE, ST_HEADER_TOO_LARGE, ST_OVERLOADED, ST_NO_MEMORY. */
    struct error error;
    /* With ST_OK and ST_REFUSED: grpc-status (codec/grpc/status.h); else -1. */
    int code;
    int http_status;    /* of the response; 0: none was received */
    bool not_processed; /* the server certainly did not process it: safe to retry */
};

typedef void grpc_client_event_cb(struct grpc_client_call *call, enum grpc_client_event event);

/* Options of a call; read during grpc_client_start_call only. */
struct grpc_client_call_options {
    struct str path;                 /* "/inference.GRPCInferenceService/ModelInfer" */
    const struct grpc_field *fields; /* metadata; values of names in "-bin" are encoded */
    size_t n_fields;                 /* at most GRPC_CLIENT_MAX_FIELDS */
    uint64_t timeout_ns;             /* from now, including the wait for a connection; 0: none */
    grpc_client_event_cb *on_event;
    void *user;
    bool streams; /* streaming: any number of messages each way; else one */
    /* A failed connection attempt does not end the call, only its timeout does. */
    bool wait_for_ready;
    /* Given the first bytes of a response message (all of it, or up to a few KiB), returns the
     * offset that shall be 64-byte aligned. May be NULL. */
    size_t (*align_at)(struct str beginning);
};

enum { GRPC_CLIENT_MAX_FIELDS = 64 };

/* Appends a message made of these pieces to the send queue. The array is read during the call only;
 * the bytes must stay valid until `release` is called (exactly once, possibly after
 * GRPC_CLIENT_END). `release` may be NULL if the bytes are in the call's arena or outlive the
 * client. Back pressure: the queue is unbounded; a streaming caller checks grpc_client_queued_bytes
 * and waits for GRPC_CLIENT_WRITABLE while the server reads slowly. */
void grpc_client_send(struct grpc_client_call *call, const struct piece *pieces, size_t n_pieces,
                      void (*release)(void *user), void *user);
/* Half-closes the call: no more messages are sent. Idempotent; implied by a unary call's
 * message. */
void grpc_client_half_close(struct grpc_client_call *call);
/* Requests the next message of a streaming call: one GRPC_CLIENT_MESSAGE for each call. Until then
 * at most one flow-control window of the response is buffered and the server waits. */
void grpc_client_read(struct grpc_client_call *call);
/* Ends the call with ST_CANCELLED, unless its status is known already. */
void grpc_client_cancel(struct grpc_client_call *call);
/* Returns: bytes in the send queue that the connection has not taken yet. */
size_t grpc_client_queued_bytes(const struct grpc_client_call *call);
/* Returns: the first value of a field, or an empty string; *n (may be NULL) is the number of
 * values. */
struct str grpc_client_find(const struct grpc_field *fields, size_t n_fields, const char *name,
                            size_t *n);

/* 0 selects the default of each. */
struct grpc_client_limits {
    uint64_t max_message_bytes; /* of a response, decompressed; default 256 MiB */
    /* Name of the setting for error messages; default "max_message_bytes". */
    const char *setting;
    uint64_t max_header_size;         /* of a response, decoded; default 64 KiB */
    uint64_t connect_timeout_ns;      /* including the name lookup; default 20 s */
    uint64_t initial_backoff_ns;      /* between two connection attempts; default 100 ms */
    uint64_t max_backoff_ns;          /* default 10 s */
    uint32_t stream_window_bytes;     /* default 4 MiB */
    uint32_t connection_window_bytes; /* default 64 MiB */
};

#endif
