/* A gRPC client for the commands: an event loop with a client of net/ in it. The caller drives it
 * like a client of libsluice: it calls grpc_link_run when the descriptor is readable or the timeout
 * has passed. Calls are unary.
 *
 * Thread: one at a time, for everything. */
#ifndef SLUICE_PROGRAM_REQUESTS_GRPC_LINK_H
#define SLUICE_PROGRAM_REQUESTS_GRPC_LINK_H

#include "client/connection/client.h"
#include "net/client/grpc/grpc_client.h"
#include "program/options/options.h"
#include "program/requests/tls_client.h"

struct grpc_link;

struct grpc_link_options {
    const struct client_url *server;
    const struct tls_client_options *tls;
    /* NAME=VALUE, sent with each call; must outlive the link. May be NULL. */
    const struct option_texts *metadata;
    uint64_t connect_timeout_ns; /* 0: the client's default */
    uint64_t max_answer_bytes;
    unsigned n_connections; /* 0: 1 */
};

/* Returns: ST_BAD_CONFIG, ST_NO_MEMORY, ST_IO. Owns: grpc_link_close. */
enum status grpc_link_open(const struct grpc_link_options *options, struct grpc_link **out,
                           struct error *err) SLUICE_MUST_USE;
/* Cancels the calls in flight and closes the connections. NULL is allowed. */
void grpc_link_close(struct grpc_link *link);
/* Sets *out to what the link waits for. */
void grpc_link_wait(const struct grpc_link *link, struct client_waiting *out);
/* Makes all progress that is possible without waiting. */
void grpc_link_run(struct grpc_link *link);

/* A call, in the caller's memory; zeroed before its first use. It must not move until it has ended.
 */
struct grpc_link_call {
    struct grpc_link *link;
    struct grpc_client_call *call;                /* NULL: ended, or not started */
    struct grpc_message *message;                 /* the response; NULL: none */
    struct error error;                           /* of the last call that ended */
    int code;                                     /* grpc-status; -1: none received */
    void (*on_done)(struct grpc_link_call *call); /* called in grpc_link_run; may be NULL */
    void *user;                                   /* the caller's */
};

/* Starts a call, and frees the previous response. The bytes of the pieces must stay until it ends.
 * Returns: ST_BAD_CONFIG for metadata that HTTP does not allow, ST_NO_MEMORY. */
enum status grpc_link_call_start(struct grpc_link *link, struct grpc_link_call *call,
                                 struct str path, const struct piece *pieces, size_t n_pieces,
                                 uint64_t timeout_ns, struct error *err) SLUICE_MUST_USE;
/* Runs the loop until the call has ended. Returns: call->error.status; ST_REFUSED with the status's
 * name and the server's message. */
enum status grpc_link_call_wait(struct grpc_link_call *call, struct error *err) SLUICE_MUST_USE;
/* The error of a call that failed: the name of its status, then the server's message. */
enum status grpc_link_call_error(const struct grpc_link_call *call, struct error *err);
/* Cancels the call and frees the response. Zeroed memory is allowed. */
void grpc_link_call_fini(struct grpc_link_call *call);

/* Requests a model's metadata, and waits. `version` may have ptr NULL. Returns: as
 * grpc_link_call_wait; ST_BAD_ANSWER. Owns: in `arena`. */
enum status grpc_link_get_model(struct grpc_link *link, struct arena *arena, struct str model,
                                struct str version, uint64_t timeout_ns, struct model_spec *out,
                                struct error *err) SLUICE_MUST_USE;

#endif
