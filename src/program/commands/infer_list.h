/* `sluice infer URL` without a model: what the server has. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_LIST_H
#define SLUICE_PROGRAM_COMMANDS_INFER_LIST_H

#include "client/v2.h"
#include "program/requests/command_client.h"

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
