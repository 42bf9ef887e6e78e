/* The inference that the arguments of `sluice infer` ask for. It refuses to send it. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_CALL_H
#define SLUICE_PROGRAM_COMMANDS_INFER_CALL_H

#include "client/v2.h"
#include "program/requests/infer_settings.h"

/* Can the call be made without the model's metadata? Yes where --datatype and --shape say it all
 * for every input, and for a raw request from raw bytes. */
bool infer_call_is_complete(const struct infer_settings *settings);

/* Reads the inputs' sources and makes the call. `model` is the model's metadata; NULL: not asked
 * for.
 * Returns: ST_BAD_CONFIG and others, naming the flag or the input. Owns: in `arena`, argv,
 * `model`. */
enum status infer_call_init(struct arena *arena, const struct infer_settings *settings,
                            const struct model_spec *model, struct client_infer *out,
                            struct error *err) __attribute__((warn_unused_result));

/* "KEY=VALUE": a whole number, a number, true, false, or a text, which quotes may surround.
 * Returns: ST_BAD_CONFIG. Owns: views of `argument`. */
enum status infer_param_parse(const char *argument, struct param *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
