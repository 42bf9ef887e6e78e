/* `sluice infer`: an inference over the protocol of the URL, or the list of the server's models. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_H
#define SLUICE_PROGRAM_COMMANDS_INFER_H

#include "client/v2.h"
#include "program/requests/command_client.h"
#include "program/requests/infer_settings.h"

/* infer_http.c: requests the model's metadata where it is needed, sends the request over HTTP, and
 * prints or saves the response; with --dry-run prints the request. Returns: ST_BAD_CONFIG for
 * invalid arguments, ST_REFUSED with the server's message, and the errors of the client. */
enum status infer_http(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) SLUICE_MUST_USE;

/* infer_grpc.c: the same over gRPC. Returns: ST_BAD_CONFIG for invalid arguments; ST_REFUSED with
 * the name of the server's status and its message; ST_IO and others. */
enum status infer_grpc(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) SLUICE_MUST_USE;

/* infer_mip.c: the same over MIP, without metadata. Returns: ST_BAD_CONFIG for a request that
 * cannot be sent, ST_REFUSED with the server's error and its meaning, ST_IO and others with the
 * client's message. */
enum status infer_mip(struct arena *arena, const struct infer_settings *settings,
                      struct error *err) SLUICE_MUST_USE;

/* ---- infer_list.c: `sluice infer URL` without a model ---------------------------------------- */

/* The server that is listed: a client of HTTP or of gRPC, the other one is NULL. */
struct infer_server {
    struct client *http;
    const struct command_client *grpc;
    const char *url; /* in examples */
};

/* Writes each model that is ready, with its inputs, outputs and an example, and each other one with
 * its state, to standard output. Returns: the errors of the client, ST_IO. */
enum status infer_list_models(const struct infer_server *server, struct arena *arena,
                              struct error *err) SLUICE_MUST_USE;

/* Appends a model's inputs, outputs and example. */
void infer_list_print_model(struct buf *out, const char *url, const struct model_spec *model);

#endif
