/* gRPC on an HTTP/2 server: calls, messages, deadlines, cancellation, status. A method is a row of
 * a table with one event callback, so a service can be tested without sockets.
 *
 *     GRPC_BEGIN → GRPC_MESSAGE … → GRPC_HALF_CLOSE → (grpc_send …, grpc_finish) → GRPC_END
 *
 * Messages are pulled: after GRPC_BEGIN, and after each message, a streaming method requests the
 * next one with grpc_read. A unary method gets GRPC_BEGIN and its one GRPC_MESSAGE without asking
 * (none or several are refused), and then responds.
 *
 * GRPC_CANCELLED is delivered at most once: the client reset the stream, the connection was lost,
 * the deadline passed, the client's message was invalid or incomplete in time, or the client did
 * not read the response. Later calls of grpc_send only release their bytes; grpc_finish is still
 * required. GRPC_END is the last event of every call, after grpc_finish; no byte of the call is in
 * use then.
 *
 * No event is delivered while a callback of the same call is on the stack. When grpc_read is called
 * outside a callback, its event may be delivered before it returns. All that is sent and finished
 * in one event-loop iteration leaves in one write.
 *
 * Back pressure: a client waits for a method that does not read, at most one flow-control window of
 * its call is buffered, and other calls of the connection continue. A method does not wait for a
 * client that reads slowly: grpc_send queues without a limit, so a method that streams watches
 * grpc_queued_bytes and continues at GRPC_WRITABLE. After write_timeout_ns without progress the
 * call is cancelled.
 *
 * Thread: all events and functions on the call's worker. */
#ifndef SLUICE_NET_SERVER_GRPC_SERVER_H
#define SLUICE_NET_SERVER_GRPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/piece.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "net/server/limits.h"
#include "net/transport/address.h"
#include "net/transport/grpc/message.h"

struct grpc_server;
struct net_budget;
struct tls_server;

enum grpc_event {
    GRPC_BEGIN,      /* the head arrived: call->fields */
    GRPC_MESSAGE,    /* ownership of call->message passes to the method */
    GRPC_HALF_CLOSE, /* the client sends no more messages; not for unary methods */
    GRPC_WRITABLE,   /* all messages queued with grpc_send are sent, see grpc_queued_bytes */
    GRPC_CANCELLED,
    GRPC_END,
};

struct grpc_call {
    struct arena *arena; /* freed after GRPC_END */
    struct worker *worker;
    struct memory_account *account; /* of the connection: what its responses hold; may be NULL */
    const struct grpc_method *method;
    void *context; /* the method's */
    struct str authority;
    /* The client's metadata that is kept (grpc_server_options.keeps_field), reserved names
     * included, without pseudo-header fields. */
    const struct grpc_field *fields;
    size_t n_fields;
    uint64_t deadline_ns;         /* on the monotonic clock; 0: none */
    struct grpc_message *message; /* during GRPC_MESSAGE */
    /* From GRPC_CANCELLED on: ST_CANCELLED, _DEADLINE_EXCEEDED, _BAD_…, _REQUEST_TIMEOUT. */
    struct error cancel_error;
    bool is_cancelled;    /* GRPC_CANCELLED was delivered or is being delivered */
    bool is_on_http_port; /* the client has connected to a port of HTTP (http_server_options.h2) */
    void *user;           /* for the method's use; NULL at GRPC_BEGIN */
};

/* The limit of messages that contain no tensor and no file: names and settings. */
enum { GRPC_SMALL_MESSAGE_BYTES = 1 << 20 };

typedef void grpc_event_cb(struct grpc_call *call, enum grpc_event event);

struct grpc_method {
    const char *path; /* "/inference.GRPCInferenceService/ModelInfer" */
    grpc_event_cb *on_event;
    bool streams;       /* any number of messages both ways */
    bool small;         /* a message is at most GRPC_SMALL_MESSAGE_BYTES, decompressed */
    bool counts_memory; /* counts what its calls take, in place of grpc_limits.stream_bytes */
    /* Given a message's first bytes (all of it, or at least 1 KiB), returns the offset that shall
     * be 64-byte aligned. Not called for compressed messages. May be NULL. */
    size_t (*align_at)(struct str beginning);
    void *context;
    /* A message of a streaming call was refused: too large, no memory, or malformed. The method may
     * send a message about it and finish the call, or return false: then, as without this callback,
     * the call is cancelled with `why`. May be NULL. */
    bool (*on_message_rejected)(struct grpc_call *call, const struct error *why);
    /* Describes a call that has begun, for the connection report (net/server/report.h). May be
     * NULL. */
    void (*describe)(const struct grpc_call *call, struct buf *out);
};

/* Requests the next message (or the half-close) of a streaming call: one event for each call of
 * this function. */
void grpc_read(struct grpc_call *call);
/* Appends a message made of these pieces to the send queue. The array is read during the call only;
 * the bytes must stay valid until `release` is called (exactly once, on the worker). `release` may
 * be NULL if they live until GRPC_END. Back pressure: never blocks; see grpc_queued_bytes. */
void grpc_send(struct grpc_call *call, const struct piece *pieces, size_t n_pieces,
               void (*release)(void *user), void *user);
/* Returns: whether grpc_send compresses a message of that size, which takes 20 ns a byte. */
bool grpc_compresses(const struct grpc_call *call, uint64_t n_bytes);
/* Compresses a message as grpc_send would, into a piece in `arena`, for grpc_send_compressed.
 * Returns: false: send it with grpc_send. Thread: any, while the method has not finished the
 * call. */
bool grpc_compress(const struct grpc_call *call, struct arena *arena, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) SLUICE_MUST_USE;
/* As grpc_send, of what grpc_compress has made. */
void grpc_send_compressed(struct grpc_call *call, const struct piece *piece,
                          void (*release)(void *user), void *user);
/* Returns: bytes queued and not yet taken by the connection. A method that streams much waits for
 * GRPC_WRITABLE when this is large: it is the only bound of the queue. */
size_t grpc_queued_bytes(const struct grpc_call *call);
/* Returns: the number of messages queued: each takes memory besides its bytes. */
size_t grpc_queued_messages(const struct grpc_call *call);
/* Returns: the time (clock_now_ns) at which the input of this event arrived, read once for all
 * input of one read. */
uint64_t grpc_now_ns(const struct grpc_call *call);
/* Sets a field of the response's head, before the first grpc_send; a trailer, before grpc_finish.
 * Copied; more than GRPC_MAX_SET_FIELDS of each are dropped. A value whose name (lower case) ends
 * in "-bin" is encoded; any other must be valid in HTTP. */
enum { GRPC_MAX_SET_FIELDS = 32 };
void grpc_set_field(struct grpc_call *call, struct str name, struct str value);
void grpc_set_trailer(struct grpc_call *call, struct str name, struct str value);
/* Ends the call with grpc-status status_grpc(err->status) and its text; NULL: OK. Exactly once. */
void grpc_finish(struct grpc_call *call, const struct error *err);
/* Returns: the first value of a field, or an empty string; *n is the number of values. */
struct str grpc_find_field(const struct grpc_call *call, const char *name, size_t *n);

/* Metadata of a call that is not counted against the budget: pseudo-header fields and kept
 * fields. */
enum { GRPC_FREE_METADATA_BYTES = 4096 };

/* For grpc_limits.stream_bytes: 4.4 to 4.6 KiB were measured, for ModelStreamInfer and Watch. */
enum { GRPC_STREAM_MEMORY_BYTES = 5 * 1024 };

/* A member that has the name of a setting (settings.def of program/model_server, program/picker) is
 * its value. The time-outs of connections are those of net/server/server_worker.c, those of streams
 * of grpc/session.c:grpc_core_init. */
struct grpc_limits {
    /* max_header_size: of a header list, decoded (RFC 9113, 6.5.2): grpc/session.c:on_header.
     * max_body_size: of a message, decompressed; a larger one is RESOURCE_EXHAUSTED; in the picker
     * with what ext-proc adds to a body: net/transport/grpc/receiver.c:check_prefix.
     * request_memory: of one message's arena: net/transport/grpc/receiver.c. The timeouts: of a
     * connection without streams, of the preface and of header blocks, of an incomplete message, of
     * a stream whose client does not read. discard_size is not used. */
    struct net_limits net;
    size_t stream_bytes;  /* what an open call takes besides its messages; 0: it is not counted:
                            net/server/grpc/stream.c:count_stream */
    uint32_t max_streams; /* at once on a connection; nghttp2 refuses more */
    uint32_t stream_window_bytes, connection_window_bytes;
    int compression_level; /* of responses, if the client accepts it: 0 off, 1 to 9 */
};

struct grpc_server_options {
    struct grpc_limits limits;
    struct net_budget *budget;
    const struct grpc_method *methods; /* must outlive the server */
    size_t n_methods;
    /* Decides whether a call may begin (API keys, draining). May be NULL. Returns: ST_OK, or the
     * reason to refuse it. */
    enum status (*admit)(const struct grpc_call *call, void *context, struct error *err);
    void *admit_context;
    /* Decides whether a field of the client's metadata, with its name in lower case, is kept for
     * `admit` and the methods; the server keeps those that it reads itself. Metadata lives as long
     * as its call and counts against the budget beyond GRPC_FREE_METADATA_BYTES. NULL: all are
     * kept. */
    bool (*keeps_field)(struct str name, void *context);
    void *keeps_context;
    struct worker *const *workers;
    size_t n_workers;
    struct worker *acceptor;
};

/* A method that does not read holds the window of its stream. Returns: the largest stream window,
 * at most `most` and at least HTTP/2's default, with which `n_streams` hold no more than
 * `memory_bytes`. */
uint32_t grpc_stream_window(uint64_t memory_bytes, uint32_t n_streams, uint32_t most);

/* As in net/server/http/server.h. */
enum status grpc_server_new(const struct grpc_server_options *options, struct grpc_server **out,
                            struct error *err) SLUICE_MUST_USE;
enum status grpc_server_listen(struct grpc_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err) SLUICE_MUST_USE;
/* The server below the protocol: net/server/shutdown.h, net/server/report.h. */
struct net_server *grpc_server_net(struct grpc_server *server);
void grpc_server_free(struct grpc_server *server);

#endif
