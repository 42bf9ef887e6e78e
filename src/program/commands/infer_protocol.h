/* `sluice infer`: the inference by the protocol that the URL names. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_PROTOCOL_H
#define SLUICE_PROGRAM_COMMANDS_INFER_PROTOCOL_H

#include "program/requests/infer_settings.h"

/* infer_http.c: `sluice infer` of a server of KServe v2 over HTTP. */
/* Sends the request and prints or saves the answer; with --dry-run prints the request. Returns:
 * ST_BAD_CONFIG for arguments that mean nothing, ST_REFUSED with the server's message, and what
 * else the client returns. */
enum status infer_http(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) __attribute__((warn_unused_result));

/* infer_grpc.c: `sluice infer grpc://…`: one inference of KServe v2 over gRPC, as infer_http.h over
 * HTTP. */
/* Asks for the model's metadata where it is needed, sends the inference and prints or writes the
 * answer; with --dry-run prints what it would send. Returns: ST_BAD_CONFIG for arguments that make
 * no sense; ST_REFUSED with the name of the server's status and its words; ST_IO and others. */
enum status infer_grpc(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) __attribute__((warn_unused_result));

/* infer_mip.c: `sluice infer` of a server of MIP. */
/* Sends the request and prints or saves the answer; with --dry-run prints the packet. Returns:
 * ST_BAD_CONFIG for what can't be sent, ST_REFUSED with the server's error and what it means,
 * otherwise ST_IO and others with the client's words. */
enum status infer_mip(struct arena *arena, const struct infer_settings *settings, struct error *err)
    __attribute__((warn_unused_result));

#endif
