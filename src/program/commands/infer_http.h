/* `sluice infer` of a server of KServe v2 over HTTP. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_HTTP_H
#define SLUICE_PROGRAM_COMMANDS_INFER_HTTP_H

#include "program/requests/infer_settings.h"

/* Sends the request and prints or saves the answer; with --dry-run prints the request. Returns:
 * ST_BAD_CONFIG for arguments that mean nothing, ST_REFUSED with the server's message, and what
 * else the client returns. */
enum status infer_http(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) __attribute__((warn_unused_result));

#endif
