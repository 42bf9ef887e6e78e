/* TLS of a listener: its files, and the context for new connections. tls_server_reload, called by a
 * timer, checks the files: changed content makes a new context for new connections; open
 * connections keep theirs. Invalid files leave the current context in use.
 *
 * Thread: the acceptor's. */
#ifndef SLUICE_NET_TRANSPORT_TLS_SERVER_H
#define SLUICE_NET_TRANSPORT_TLS_SERVER_H

#include <stdbool.h>
#include <time.h>

#include "core/base/status.h"

struct tls_context;
struct tls_server;

struct tls_file {
    const char *setting; /* name in messages: "--http-tls-cert" */
    const char *path;
};

/* The texts must outlive the server. */
struct tls_server_options {
    struct tls_file cert; /* PEM: the server's certificate, then its chain */
    struct tls_file key;  /* PEM, not encrypted; may be the same file */
    /* PEM: CAs of client certificates; path NULL: no client certificates. */
    struct tls_file client_ca;
    bool self_signed; /* instead of `cert` and `key`, whose paths are NULL */
    bool only_1_3;    /* TLS 1.2 is refused */
    /* Suites of TLS 1.2 as struct tls_texts has them; `path` is the text, NULL: all that
     * HTTP/2 allows. */
    struct tls_file suites;
};

/* Reads the files; logs a warning for a certificate that has expired or is not valid yet. Returns:
 * ST_BAD_CONFIG or ST_IO with the setting, the file, what is wrong and what is expected. Owns: *out
 * until tls_server_free; open connections do not need it. */
enum status tls_server_new(const struct tls_server_options *options, time_t now,
                           struct tls_server **out, struct error *err) SLUICE_MUST_USE;
/* Reads the files again. What changed is taken when two calls in a row find the same in all of
 * them, so that a pair of which one file was replaced is not, or `at_once`; logs and counts the
 * result, once for each change. Returns: whether there is a new context. */
bool tls_server_reload(struct tls_server *server, time_t now, bool at_once);
/* Returns: the context for a new connection. Owns: a reference. */
struct tls_context *tls_server_context(const struct tls_server *server);
/* NULL is allowed. */
void tls_server_free(struct tls_server *server);

#endif
