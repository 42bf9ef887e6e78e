/* Where a server is, and what it speaks there:
 *
 *     http://HOST[:PORT][/BASE]   KServe v2; PORT is 80 when absent; BASE goes before every path
 *     https://HOST[:PORT][/BASE]  the same over TLS; PORT is 443 when absent
 *     http+unix:/PATH             KServe v2 on a Unix socket; http+unix:///PATH means the same
 *     grpc://HOST:PORT            KServe v2 over gRPC; grpcs:// over TLS
 *     grpc+unix:/PATH             the same on a Unix socket
 *     tcp://HOST:PORT             MIP
 *     unix:///PATH                MIP on a Unix socket; unix://PATH is relative
 *
 * HOST is a name, an IPv4 address or an IPv6 address in brackets. It refuses user names, queries
 * and fragments, which have no meaning here, and never guesses a scheme. (libsluice itself does not
 * speak gRPC; the commands do.) */
#ifndef SLUICE_CLIENT_URL_H
#define SLUICE_CLIENT_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum client_protocol { CLIENT_HTTP, CLIENT_GRPC, CLIENT_MIP };

struct client_url {
    struct str text; /* the URL as it was given; NUL-terminated */
    enum client_protocol protocol;
    bool is_tls;
    bool is_unix;
    struct str host; /* without brackets; NUL-terminated */
    uint16_t port;
    struct str path;      /* of the socket, when is_unix; NUL-terminated */
    struct str base;      /* of HTTP: "" or "/base": begins with a slash, does not end with one */
    struct str authority; /* for the Host field: "127.0.0.1:8000", "[::1]:8000", "localhost" */
};

/* Returns: ST_BAD_CONFIG saying what is wrong and what would be right. Owns: the texts are in
 * `arena`. */
enum status client_url_parse(struct arena *arena, struct str text, struct client_url *out,
                             struct error *err) __attribute__((warn_unused_result));

/* Of what messages speak: the host and port, or the socket's path. */
static inline struct str client_url_endpoint(const struct client_url *url) {
    return url->is_unix ? url->path : url->authority;
}

/* Does the server speak `protocol`? `what` asks that. Returns: ST_BAD_CONFIG saying which URLs are
 * for it. */
enum status client_url_expect(const struct client_url *url, enum client_protocol protocol,
                              const char *what, struct error *err)
    __attribute__((warn_unused_result));

#endif
