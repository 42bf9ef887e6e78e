/* The URL of a server as commands take it: what the client understands, without TLS. */
#ifndef SLUICE_CLI_SERVER_URL_H
#define SLUICE_CLI_SERVER_URL_H

#include "client/client_url.h"

/* Returns: ST_BAD_CONFIG saying what is wrong and what would be right. Owns: in `arena`. */
enum status server_url_parse(struct arena *arena, const char *text, struct client_url *out,
                             struct error *err) __attribute__((warn_unused_result));

#endif
