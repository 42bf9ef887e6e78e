/* `sluice infer grpc://…`: one inference of KServe v2 over gRPC, as infer_http.h over HTTP. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_GRPC_H
#define SLUICE_PROGRAM_COMMANDS_INFER_GRPC_H

#include "program/requests/infer_settings.h"

/* Asks for the model's metadata where it is needed, sends the inference and prints or writes the
 * answer; with --dry-run prints what it would send. Returns: ST_BAD_CONFIG for arguments that make
 * no sense; ST_REFUSED with the name of the server's status and its words; ST_IO and others. */
enum status infer_grpc(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) __attribute__((warn_unused_result));

#endif
