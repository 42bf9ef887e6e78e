/* The index of a server's models, and its names in an error about a model that it does not have. */
#ifndef SLUICE_PROGRAM_REQUESTS_MODEL_NAMES_H
#define SLUICE_PROGRAM_REQUESTS_MODEL_NAMES_H

#include "client/v2.h"
#include "codec/json/tree.h"
#include "program/requests/command_client.h"

/* Requests the index over HTTP or gRPC, and waits. *index is an array whose elements have name,
 * version, state and reason. Returns: ST_REFUSED, ST_IO, ST_BAD_ANSWER and others. Owns: in
 * `arena`. */
enum status model_index_get(struct client *client, struct arena *arena, yyjson_val **index,
                            struct error *err) SLUICE_MUST_USE;
enum status model_index_get_grpc(const struct command_client *client, struct arena *arena,
                                 yyjson_val **index, struct error *err) SLUICE_MUST_USE;
bool model_index_is_ready(yyjson_val *entry);

/* Appends to an error of an answer about the model `name` the names that the server has, where it
 * lists them and the name is none of them. */
void model_names_explain(struct client *client, struct arena *arena, struct str name,
                         struct error *err);
void model_names_explain_grpc(const struct command_client *client, struct arena *arena,
                              struct str name, struct error *err);

#endif
