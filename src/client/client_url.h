/* Where a server is:
 *
 *     http://HOST[:PORT][/BASE]   TCP; PORT is 80 when absent; BASE goes before every path
 *     http+unix:/PATH             a Unix socket; http+unix:///PATH means the same
 *
 * HOST is a name, an IPv4 address or an IPv6 address in brackets. It refuses user names, queries
 * and fragments, which have no meaning here, and never guesses a scheme. */
#ifndef SLUICE_CLIENT_CLIENT_URL_H
#define SLUICE_CLIENT_CLIENT_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

struct client_url {
    bool is_unix;
    struct str host; /* without brackets; NUL-terminated */
    uint16_t port;
    struct str path;      /* of the socket, when is_unix; NUL-terminated */
    struct str base;      /* "" or "/base": begins with a slash, does not end with one */
    struct str authority; /* for the Host field: "127.0.0.1:8000", "[::1]:8000", "localhost" */
};

/* Returns: ST_BAD_CONFIG saying what is wrong and what would be right. Owns: the texts are in
 * `arena`. */
enum status client_url_parse(struct arena *arena, struct str text, struct client_url *out,
                             struct error *err) __attribute__((warn_unused_result));

#endif
