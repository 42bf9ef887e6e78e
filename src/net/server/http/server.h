/* The HTTP server: parses heads and bodies strictly, and sends responses without copying them. The
 * requests of an HTTP/1.1 connection are processed in order, those of an HTTP/2 connection at the
 * same time; router and handlers do not see which version carries an exchange. The router decides
 * by the head which handler a request gets, and writes the bodies of errors.
 *
 * An exchange is one request and its response. It lives on the worker of its connection, with one
 * arena:
 *
 *     on_head → (body arrives in its final place) → on_body → … → http_reply → on_end
 *
 * on_head may reply at once (an error, or what needs no body); on_body is then not called.
 * Otherwise it sets the exchange's handler, and on_body follows once the request is complete: for
 * one without a body at once. The reply comes with on_body or later; when the body fails the server
 * itself replies. The rest of a refused body is dropped within a bound; past it the server
 * half-closes, so that the client can still read the response. on_end of the handler, where on_head
 * has set one, is called exactly once, also when the client
 * disconnects before the response: then `client_disconnected` was set first and http_reply only
 * releases. A client that only half-closes is taken for one that disconnected: the handler cancels
 * what it can (on_disconnect), but its response is still sent, and a streamed one is cut off. Over
 * HTTP/2 a client disconnects when it resets the stream, and what closes an HTTP/1.1 connection
 * ends the stream only.
 *
 * Back pressure: a pipelined request waits until the response before it is sent, and a client that
 * does not read its responses stops being read. The handler never waits: its response is sent in
 * place and released when the client has taken it. After write_timeout_ns without progress the
 * connection is closed.
 *
 * Thread: all callbacks and http_reply on the exchange's worker. */
#ifndef SLUICE_NET_SERVER_HTTP_SERVER_H
#define SLUICE_NET_SERVER_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/http1/content_coding.h"
#include "codec/http1/request.h"
#include "codec/http1/web_access.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/piece.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "net/server/limits.h"
#include "net/transport/address.h"
#include "net/transport/budget.h"

struct grpc_server;
struct http_server;
struct http_version;
struct tls_server;

/* How a body is received; set by on_head. Defaults: the server's limits, identity. */
struct http_body_plan {
    uint64_t max_bytes;      /* after decompression; a larger one is 413 */
    const char *setting;     /* of max_bytes, for errors; NULL: "--max-body-size" */
    size_t align_at;         /* this offset of the body is 64-byte aligned */
    enum http_coding coding; /* decompressed while it arrives */
};

struct http_exchange;

/* What becomes of a request after its head: constant, one for each kind of route. The callbacks get
 * the context of the router. */
struct http_handler {
    /* The request is complete. NULL: it has a reply, or gets one by itself; then it has no body. */
    void (*on_body)(struct http_exchange *exchange, void *context);
    /* client_disconnected or client_half_closed was set; may be called for both. May be NULL. */
    void (*on_disconnect)(struct http_exchange *exchange, void *context);
    void (*on_end)(struct http_exchange *exchange, void *context); /* may be NULL */
};

struct http_exchange {
    struct arena *arena; /* freed with the exchange */
    struct worker *worker;
    /* Of the connection: what its responses hold. NULL once the client has disconnected. */
    struct memory_account *account;
    const struct web_listener *listener; /* where the client has connected */
    struct http_head head;
    struct http_body_plan plan;
    struct str body; /* complete when on_body is called, "" for none; valid until on_end */
    bool client_disconnected;
    bool client_half_closed; /* before the response */
    /* Set for on_body: other requests of the connection are pipelined around this one; an immediate
     * response leaves in one write with theirs. */
    bool pipelined;
    bool suppress_body; /* set by net for HEAD: headers as for GET, no body */
    /* Set by the handler: the response has the fields that let a page of this origin read it, an
     * error too. Valid until on_end; "": none. */
    struct str allow_origin;
    const struct http_handler *handler; /* set by on_head; NULL: it has replied */
    void *user;                         /* for the handler's use */
    const struct http_version *version; /* which carries it; for net/server/http */
    const struct http_router *router;
};

/* A response. The arrays (fields, pieces) are read during http_reply only. The bytes of the pieces
 * are not copied: they must stay valid until `release` is called, exactly once, on the exchange's
 * worker, when they are sent or no longer needed (bytes in the exchange's arena are valid as long
 * as that). Back pressure: the handler never waits; a client that reads slowly delays `release`. */
struct http_reply {
    int status;
    const char *content_type;        /* NULL: no body and no Content-Type */
    const struct http_field *fields; /* additional fields, written as they are */
    size_t n_fields;
    const struct piece *pieces;
    size_t n_pieces;
    void (*release)(void *user); /* may be NULL */
    void *user;
    bool close; /* close the connection after this response: HTTP/1.1 alone */
};

struct http_router {
    void *context;
    /* The head is complete: replies, or sets the exchange's handler and the plan of the body. */
    void (*on_head)(struct http_exchange *exchange, void *context);
    /* Writes the body of an error (the server's own too). Returns: its Content-Type. */
    const char *(*error_body)(struct buf *out, const struct error *error, void *context);
};

/* Sends the response. Exactly once per exchange. */
void http_reply(struct http_exchange *exchange, const struct http_reply *reply);
/* Sends an error response made by error_body; `fields` may add some (Allow). */
void http_reply_error(struct http_exchange *exchange, const struct error *error,
                      const struct http_field *fields, size_t n_fields);

/* A streamed response, each chunk sent as it comes: http_stream_begin (status, content type and
 * fields of `reply` apply) instead of http_reply, once the request is complete; http_stream_send
 * any number of times; http_stream_end, exactly once, also after on_disconnect: later chunks are
 * only released. HTTP/1.1 uses chunked coding, HTTP/1.0 a body that ends with the connection.
 * Pieces are as those of http_reply. Chunks are queued outside the exchange's arena, so a stream
 * may be long. Out of memory, and for a send without pieces (a chunk is missing), the connection is
 * closed. Back pressure: chunks are queued without a limit while the client reads slowly; a handler
 * bounds them by the `release` of earlier chunks. After write_timeout_ns without progress the
 * connection is closed. */
void http_stream_begin(struct http_exchange *exchange, const struct http_reply *reply);
void http_stream_send(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                      void (*release)(void *user), void *user);
void http_stream_end(struct http_exchange *exchange);

struct http_server_options {
    struct net_limits limits;
    struct net_budget *budget; /* bodies or connections over it: 503 */
    struct http_router router;
    struct worker *const *workers; /* each connection goes to the one with the fewest */
    size_t n_workers;
    struct worker *acceptor; /* its loop accepts; may be one of `workers` */
    const char *server_name; /* the Server field */
    /* A server of gRPC with the same workers and budget, which gets the connections that begin with
     * HTTP/2's preface; their requests that are not gRPC are served here, too. NULL: such
     * connections are refused. It must be stopped and freed by itself, and outlive the stop of this
     * one; it serves one server of HTTP. */
    struct grpc_server *h2;
};

enum status http_server_new(const struct http_server_options *options, struct http_server **out,
                            struct error *err);
/* Binds and listens; `bound` gets the bound address (port 0 resolved). The stale file of a Unix
 * socket is replaced; a socket in use is an error. Over TLS when `tls` is not NULL; it must outlive
 * the server's stop. Thread: before the acceptor's loop runs, or on it. */
enum status http_server_listen(struct http_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err);
/* The server below the protocol: net/server/shutdown.h, net/server/report.h. */
struct net_server *http_server_net(struct http_server *server);
/* After `done`, or if the server never listened. NULL is allowed. */
void http_server_free(struct http_server *server);

#endif
