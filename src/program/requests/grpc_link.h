/* gRPC for the commands that ask a server: a loop with a client of net's in it, which whoever has
 * it steps, as one steps a client of libsluice: when its descriptor can be read, or its time has
 * come. Calls are unary.
 *
 * Thread: one at a time, for everything. */
#ifndef SLUICE_PROGRAM_REQUESTS_GRPC_LINK_H
#define SLUICE_PROGRAM_REQUESTS_GRPC_LINK_H

#include "client/client.h"
#include "net/client/grpc/grpc_client.h"
#include "program/options/options.h"
#include "program/requests/tls_client.h"

struct grpc_link;

struct grpc_link_options {
    const struct client_url *server;
    const struct tls_client_options *tls;
    /* NAME=VALUE: sent with each call; outlives the link. May be NULL. */
    const struct option_texts *metadata;
    uint64_t connect_timeout_ns; /* 0: the client's default */
    uint64_t max_answer_bytes;
    unsigned n_connections; /* 0: 1 */
};

/* Returns: ST_BAD_CONFIG, ST_NO_MEMORY, ST_IO. Owns: grpc_link_close. */
enum status grpc_link_open(const struct grpc_link_options *options, struct grpc_link **out,
                           struct error *err) __attribute__((warn_unused_result));
/* Gives up what is under way, and says goodbye. NULL is allowed. */
void grpc_link_close(struct grpc_link *link);
/* What it waits for. */
void grpc_link_wait(const struct grpc_link *link, struct client_waiting *out);
/* Goes on as far as that is possible without waiting. */
void grpc_link_run(struct grpc_link *link);

/* A call, in the caller's memory; zeroed is a new one. It stays where it is until it is over. */
struct grpc_link_call {
    struct grpc_link *link;
    struct grpc_client_call *call; /* NULL: over, or none was begun */
    struct grpc_message *message;  /* the answer; NULL: none */
    struct error error;            /* of the last one that is over; ST_OK, or why not */
    int code;                      /* grpc-status; -1: the server gave none */
    void (*on_done)(struct grpc_link_call *call); /* inside grpc_link_run; may be NULL */
    void *user;                                   /* the caller's */
};

/* Begins it: the answer of one before is gone. The bytes of the pieces stay until it is over.
 * Returns: ST_BAD_CONFIG for metadata that HTTP does not allow, ST_NO_MEMORY. */
enum status grpc_link_call_start(struct grpc_link *link, struct grpc_link_call *call,
                                 struct str path, const struct piece *pieces, size_t n_pieces,
                                 uint64_t timeout_ns, struct error *err)
    __attribute__((warn_unused_result));
/* Runs and waits until it is over. Returns: call->error.status; ST_REFUSED with the status's name
 * and the server's words. */
enum status grpc_link_call_wait(struct grpc_link_call *call, struct error *err)
    __attribute__((warn_unused_result));
/* The sentence of a call that failed: in front of the server's words the name of its status. */
enum status grpc_link_call_error(const struct grpc_link_call *call, struct error *err);
/* Gives it up; frees the answer. Zeroed memory is allowed. */
void grpc_link_call_fini(struct grpc_link_call *call);

/* "/inference.GRPCInferenceService/…" */
#define GRPC_LINK_PATH(method) STR("/inference.GRPCInferenceService/" method)

/* Asks for a model's metadata, and waits. `version` may have ptr NULL. Returns: as a call;
 * ST_BAD_ANSWER. Owns: in `arena`. */
enum status grpc_link_get_model(struct grpc_link *link, struct arena *arena, struct str model,
                                struct str version, uint64_t timeout_ns, struct model_spec *out,
                                struct error *err) __attribute__((warn_unused_result));

#endif
