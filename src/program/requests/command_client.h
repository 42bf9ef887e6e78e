/* A client of libsluice (sluice/client.h) with the options of the command line; and calls of gRPC
 * whose messages the commands encode and decode themselves, because they print a request, or send
 * one many times. The functions of libsluice run these calls.
 *
 * Thread: one at a time, for a client and its calls. */
#ifndef SLUICE_PROGRAM_REQUESTS_COMMAND_CLIENT_H
#define SLUICE_PROGRAM_REQUESTS_COMMAND_CLIENT_H

#include "client/connection/tls.h"
#include "client/connection/url.h"
#include "client/v2_grpc.h"
#include "core/tensor/tensor.h"
#include "program/options/options.h"
#include "sluice/client.h"

struct command_client_options {
    const struct client_url *server;
    const struct client_tls *tls; /* of tls_client_new; NULL: none. Must outlive the client */
    /* NAME=VALUE, sent with each call; gRPC only. NULL: none */
    const struct option_texts *metadata;
    uint64_t connect_timeout_ns, timeout_ns; /* 0: the client's defaults */
    uint64_t max_answer_bytes;               /* 0: the client's default */
};

/* Zeroed: closed. */
struct command_client {
    sluice_client *client;
    struct client_tls_transport *transport; /* NULL: no TLS */
};

/* Opens a client, which connects when a call needs it. Returns: ST_BAD_CONFIG for metadata,
 * ST_NO_MEMORY. Owns: command_client_close. */
enum status command_client_open(const struct command_client_options *options,
                                struct command_client *out, struct error *err) SLUICE_MUST_USE;
/* Cancels and frees the calls, and closes the connections. */
void command_client_close(struct command_client *self);
/* Makes the error of a command from one of libsluice. Returns: ST_REFUSED for an error answer,
 * ST_IO for a connection that failed, and others. */
enum status command_client_error(const sluice_client_error *error, struct error *err);

/* ---- gRPC: calls with encoded messages ------------------------------------------------------- */

/* Starts a unary call. The bytes of its message must stay until it ends. Returns: ST_NO_MEMORY and
 * others. Owns: *out until sluice_call_free. */
enum status command_call_start(const struct command_client *self,
                               const struct client_grpc_request *request,
                               const sluice_call_options *options, sluice_call **out,
                               struct error *err) SLUICE_MUST_USE;
/* Of a call that has ended: the answer's message, empty if there is none, until the call is freed;
 * *code: grpc-status, or -1: no answer. Returns: ST_REFUSED with the status's name and the server's
 * message; ST_IO and others. */
enum status command_call_result(const sluice_call *call, struct str *message, int *code,
                                struct error *err) SLUICE_MUST_USE;
/* Starts a call and blocks until it has ended. Returns: as command_call_result. Owns: *out, which
 * may be NULL, until sluice_call_free, with the message. */
enum status command_call_run(const struct command_client *self,
                             const struct client_grpc_request *request, sluice_call **out,
                             struct str *message, struct error *err) SLUICE_MUST_USE;
/* Requests a model's metadata, and waits. `version` may have ptr NULL. Returns: as
 * command_call_run; ST_BAD_ANSWER. Owns: in `arena`. */
enum status command_client_get_model(const struct command_client *self, struct arena *arena,
                                     struct str model, struct str version, struct model_spec *out,
                                     struct error *err) SLUICE_MUST_USE;

#endif
