/* The URL of a server: its address and protocol.
 *
 *     http://HOST[:PORT][/BASE]   KServe v2; PORT is 80 if absent; BASE is put before all paths
 *     https://HOST[:PORT][/BASE]  the same over TLS; PORT is 443 if absent
 *     http+unix:/PATH             KServe v2 on a Unix socket; http+unix:///PATH means the same
 *     grpc://HOST:PORT            KServe v2 over gRPC; grpcs:// over TLS
 *     grpc+unix:/PATH             the same on a Unix socket
 *     tcp://HOST:PORT             MIP
 *     unix:///PATH                MIP on a Unix socket; unix://PATH is relative
 *
 * HOST is a name, an IPv4 address or an IPv6 address in brackets. User names, queries and fragments
 * are errors, and so is a missing scheme. */
#ifndef SLUICE_CLIENT_CONNECTION_URL_H
#define SLUICE_CLIENT_CONNECTION_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum client_protocol { CLIENT_HTTP, CLIENT_GRPC, CLIENT_MIP };

struct client_url {
    struct str text; /* the URL as given; NUL-terminated */
    enum client_protocol protocol;
    bool is_tls;
    bool is_unix;
    struct str host; /* without brackets; NUL-terminated */
    uint16_t port;
    struct str path;      /* of the socket, when is_unix; NUL-terminated */
    struct str base;      /* of HTTP: "" or "/base": begins with a slash, does not end with one */
    struct str authority; /* for the Host field: "127.0.0.1:8000", "[::1]:8000", "localhost" */
};

/* Returns: ST_BAD_CONFIG with the error and the expected form. Owns: the texts are in `arena`. */
enum status client_url_parse(struct arena *arena, struct str text, struct client_url *out,
                             struct error *err) SLUICE_MUST_USE;

/* For error texts: the host and port, or the socket's path. */
static inline struct str client_url_endpoint(const struct client_url *url) {
    return url->is_unix ? url->path : url->authority;
}

/* Checks the protocol of the URL. `what` names the call that needs it. Returns: ST_UNSUPPORTED
 * with the URLs that would be valid. */
enum status client_url_expect(const struct client_url *url, enum client_protocol protocol,
                              const char *what, struct error *err) SLUICE_MUST_USE;

#endif
