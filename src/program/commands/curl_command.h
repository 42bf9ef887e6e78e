/* The curl command that sends a given request, for a POSIX shell. It is made from the request's own
 * bytes, so that both are the same. */
#ifndef SLUICE_PROGRAM_COMMANDS_CURL_COMMAND_H
#define SLUICE_PROGRAM_COMMANDS_CURL_COMMAND_H

#include "client/v2.h"
#include "core/base/buf.h"
#include "program/requests/tls_client.h"

/* Appends the command and a line break. The body is read from `body_file`; NULL: it is part of the
 * command, as text if possible, else through printf. The options of `tls` have curl's names. */
void curl_command_print(struct buf *out, const struct client_url *url,
                        const struct tls_client_options *tls, const struct client_request *request,
                        const char *body_file);

/* Appends the TLS options. */
void curl_tls_print(struct buf *out, const struct tls_client_options *tls);

#endif
