/* gRPC over the HTTP/2 server: calls, messages, deadlines, cancellation, status. It knows no
 * service: a method is a row of a table with one function, which is given the call and what
 * happened to it, so that a service is tested without a socket.
 *
 *     GRPC_BEGIN → GRPC_MESSAGE … → GRPC_HALF_CLOSE → (grpc_send …, grpc_finish) → GRPC_END
 *
 * Messages are pulled: after GRPC_BEGIN, and after each message it has taken in hand, a method says
 * with grpc_read that it wants the next one. Nothing more than the flow-control window is held for
 * a call whose method does not read. A unary method is read for: it gets GRPC_BEGIN, one
 * GRPC_MESSAGE (none or two are refused for it), and then answers.
 *
 * GRPC_CANCELLED comes at most once, when nobody waits any more: the client reset the stream, the
 * connection was lost, the deadline passed, what the client sent was wrong or did not come, or it
 * took nothing of the answer. All later grpc_send only release, grpc_finish is still owed. GRPC_END
 * is the last event of every call, after grpc_finish; no byte of the call's is in use any more.
 *
 * No event comes while a step of the same call is on the stack, but for the one that grpc_read asks
 * for when it is called from elsewhere: then that may come before it returns. What is sent and
 * finished in one turn of the loop leaves in one write.
 *
 * Thread: all events and functions on the call's worker. */
#ifndef SLUICE_NET_SERVER_GRPC_SERVER_H
#define SLUICE_NET_SERVER_GRPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "net/transport/address.h"
#include "net/transport/grpc/message.h"

struct grpc_server;
struct net_budget;
struct tls_server;

enum grpc_event {
    GRPC_BEGIN,      /* the head is here: call->fields */
    GRPC_MESSAGE,    /* call->message is the method's now */
    GRPC_HALF_CLOSE, /* the client sends no more messages; not for unary methods */
    GRPC_WRITABLE,   /* what was queued with grpc_send has left, see grpc_queued_bytes */
    GRPC_CANCELLED,
    GRPC_END,
};

struct grpc_call {
    struct arena *arena; /* freed after GRPC_END */
    struct worker *worker;
    const struct grpc_method *method;
    void *context; /* the method's */
    struct str authority;
    const struct grpc_field
        *fields; /* the client's metadata, also reserved ones but pseudo fields */
    size_t n_fields;
    uint64_t deadline_ns;         /* on the monotonic clock; 0: none */
    struct grpc_message *message; /* during GRPC_MESSAGE */
    struct error
        cancel_error;  /* from GRPC_CANCELLED on: why (ST_CANCELLED, _DEADLINE_EXCEEDED, _BAD_…,
                               _REQUEST_TIMEOUT) */
    bool is_cancelled; /* cancelled */
    void *user;        /* the method's own, NULL at GRPC_BEGIN */
};

typedef void grpc_event_cb(struct grpc_call *call, enum grpc_event event);

struct grpc_method {
    const char *path; /* "/inference.GRPCInferenceService/ModelInfer" */
    grpc_event_cb *on_event;
    bool streams; /* the client may send any number of messages, the server too */
    /* Of a message's first bytes (all of it, or 1 KiB and more): which offset shall fall on a
     * 64-byte boundary. Not asked of compressed ones. May be NULL. */
    size_t (*align_at)(struct str beginning);
    void *context;
    /* A streaming call's next message can't be taken: too large, no memory, not a message. The
     * method may say something about it and then finishes the call, or returns false, as without
     * this: the call is cancelled with `why`. May be NULL. */
    bool (*on_message_rejected)(struct grpc_call *call, const struct error *why);
    /* What a call that has begun is doing, for people (net/server/report.h); may be NULL. */
    void (*describe)(const struct grpc_call *call, struct buf *out);
};

/* Asks for the next message (or the half-close) of a streaming call. One is given for each time. */
void grpc_read(struct grpc_call *call);
/* Queues a message of these pieces behind those before. The array is read during the call only, the
 * bytes must stay until `release`, called exactly once on the worker; NULL where they live until
 * GRPC_END. */
void grpc_send(struct grpc_call *call, const struct piece *pieces, size_t n_pieces,
               void (*release)(void *user), void *user);
/* Bytes queued and not yet taken by the connection: who streams much waits for GRPC_WRITABLE. */
size_t grpc_queued_bytes(const struct grpc_call *call);
/* The time (clock_now_ns) at which what this step is about was there: it is looked at once for all
 * that came together. */
uint64_t grpc_now_ns(const struct grpc_call *call);
/* Fields of the answer's head, before the first grpc_send; of its trailers, before grpc_finish.
 * Copied; those over the first GRPC_MAX_SET_FIELDS of each are dropped. A name (lower case) that
 * ends in "-bin" is encoded; another value must be what HTTP allows. */
enum { GRPC_MAX_SET_FIELDS = 32 };
void grpc_set_field(struct grpc_call *call, struct str name, struct str value);
void grpc_set_trailer(struct grpc_call *call, struct str name, struct str value);
/* Ends the call with grpc-status status_grpc(err->status) and its text; NULL: OK. Exactly once. */
void grpc_finish(struct grpc_call *call, const struct error *err);
/* The value of a field; *n is how many there are. Returns: the first one, or an empty string. */
struct str grpc_find_field(const struct grpc_call *call, const char *name, size_t *n);

/* Each is a setting with a default (program/model_server/settings.def). */
struct grpc_limits {
    size_t max_header_size;     /* header list, decoded */
    uint64_t max_message_bytes; /* decompressed: RESOURCE_EXHAUSTED */
    uint64_t request_memory;    /* of one message's arena */
    uint32_t max_streams;       /* at once on a connection */
    uint32_t stream_window_bytes, connection_window_bytes;
    uint64_t idle_timeout_ns;   /* a connection without streams */
    uint64_t header_timeout_ns; /* preface, and header blocks */
    uint64_t body_timeout_ns;   /* an unfinished message that pauses */
    uint64_t write_timeout_ns;
    int compression_level; /* of answers to those who accept it: 0 none, 1 to 9 */
};

struct grpc_server_options {
    struct grpc_limits limits;
    struct net_budget *budget;
    const struct grpc_method *methods; /* must outlive the server */
    size_t n_methods;
    /* Asked before a call begins (keys, draining); may be NULL. Returns: ST_OK, or why not. */
    enum status (*admit)(const struct grpc_call *call, void *context, struct error *err);
    void *admit_context;
    struct worker *const *workers;
    size_t n_workers;
    struct worker *acceptor;
};

/* As in net/server/http/server.h. */
enum status grpc_server_new(const struct grpc_server_options *options, struct grpc_server **out,
                            struct error *err) __attribute__((warn_unused_result));
enum status grpc_server_listen(struct grpc_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err) __attribute__((warn_unused_result));
/* GOAWAY on every connection; calls at hand go on, connections close as their last call ends. */
void grpc_server_drain(struct grpc_server *server);
uint64_t grpc_server_in_flight(const struct grpc_server *server);
/* For net/server/report.h. */
struct net_server *grpc_server_net(struct grpc_server *server);
void grpc_server_stop(struct grpc_server *server, void (*done)(void *user), void *user);
void grpc_server_free(struct grpc_server *server);

#endif
