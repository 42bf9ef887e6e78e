/* The inference that the arguments of `sluice infer` describe. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_CALL_H
#define SLUICE_PROGRAM_COMMANDS_INFER_CALL_H

#include "client/v2.h"
#include "program/commands/infer_picture.h"
#include "program/requests/infer_settings.h"

/* Can the request be made without the model's metadata? Yes where --datatype and --shape are
 * complete for every input, and for a raw request from raw bytes. */
bool infer_call_is_complete(const struct infer_settings *settings);

/* Reads the inputs' sources and makes the request. Returns: ST_BAD_CONFIG and others, with the flag
 * or the input. Owns: in `arena`, argv, `model`. */
enum status infer_call_init(struct arena *arena, const struct infer_settings *settings,
                            const struct infer_model *model, struct client_infer *out,
                            struct error *err) SLUICE_MUST_USE;

/* Parses "KEY=VALUE": an integer, a number, true, false, or a text, optionally in quotes. Returns:
 * ST_BAD_CONFIG. Owns: views of `argument`. */
enum status infer_param_parse(const char *argument, struct param *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
