/* TLS of a listener: the files it is made from, and what new connections begin with. The files are
 * looked at again when somebody says so (tls_server_reload, on a timer): other bytes make a new
 * context, for new connections; those that are open keep theirs. Files that can't be used leave
 * everything as it is.
 *
 * Thread: one, the acceptor's. */
#ifndef SLUICE_NET_TRANSPORT_TLS_SERVER_H
#define SLUICE_NET_TRANSPORT_TLS_SERVER_H

#include <stdbool.h>
#include <time.h>

#include "core/base/status.h"

struct tls_context;
struct tls_server;

struct tls_file {
    const char *setting; /* for messages: "--http-tls-cert" */
    const char *path;
};

/* The texts must outlive the server. */
struct tls_server_options {
    struct tls_file cert;      /* PEM: the server's own certificate, then those that vouch for it */
    struct tls_file key;       /* PEM, not encrypted; may be the same file */
    struct tls_file client_ca; /* PEM: who signs clients' certificates; path NULL: they need none */
    bool self_signed;          /* instead of `cert` and `key`, whose paths are NULL */
};

/* Reads the files; warns in the log of a certificate that has expired or is not yet valid. Returns:
 * ST_BAD_CONFIG or ST_IO with the setting, the file, what is wrong, and what would be right. Owns:
 * *out until tls_server_free; open connections do not need it. */
enum status tls_server_new(const struct tls_server_options *options, time_t now,
                           struct tls_server **out, struct error *err)
    __attribute__((warn_unused_result));
/* Reads the files again. What came of it is logged and counted, once for each change. Returns: true
 * when new connections get something new. */
bool tls_server_reload(struct tls_server *server, time_t now);
/* What a new connection begins with. Owns: a reference. */
struct tls_context *tls_server_context(const struct tls_server *server);
/* NULL is allowed. */
void tls_server_free(struct tls_server *server);

#endif
