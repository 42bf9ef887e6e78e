/* `sluice infer URL` without a model: what the server has. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_LIST_H
#define SLUICE_PROGRAM_COMMANDS_INFER_LIST_H

#include "client/v2.h"

/* Appends each model that is ready, with its inputs, outputs and an example, and each other one
 * with its state. Returns: the errors of the client. */
enum status infer_list_print(struct client *client, struct arena *arena, const char *url,
                             struct buf *out, struct error *err) SLUICE_MUST_USE;

/* Appends a model's inputs, outputs and example. */
void infer_list_print_model(struct buf *out, const char *url, const struct model_spec *model);

#endif
