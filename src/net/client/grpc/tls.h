/* TLS of a connection of the gRPC client, without I/O: encrypted bytes of the server go in,
 * encrypted bytes for it come out. The buffers are in memory and grow: what is written at a time is
 * bounded by grpc_output.
 *
 * Thread: one at a time. */
#ifndef SLUICE_NET_CLIENT_GRPC_TLS_H
#define SLUICE_NET_CLIENT_GRPC_TLS_H

#include <openssl/ssl.h>

#include "net/client/grpc/grpc_client.h"

struct grpc_tls {
    SSL_CTX *context; /* of this connection: the files may have changed since the last one */
    SSL *ssl;
    BIO *in, *out; /* the session's */
    const struct grpc_client_tls *files;
};

/* Initialises zeroed memory. `host`: the name that the server's certificate must have. Returns:
 * ST_BAD_CONFIG for a file, ST_NO_MEMORY. Owns: grpc_tls_fini, also after a failure. */
enum status grpc_tls_init(struct grpc_tls *self, const struct grpc_client_tls *files,
                          const char *host, struct error *err) SLUICE_MUST_USE;
/* Zeroed memory is allowed. */
void grpc_tls_fini(struct grpc_tls *self);

/* Adds bytes that the server sent. Returns: false when out of memory. */
bool grpc_tls_receive(struct grpc_tls *self, struct str bytes) SLUICE_MUST_USE;
/* Continues the handshake; *done: it is complete. Returns: ST_IO with the reason. */
enum status grpc_tls_handshake(struct grpc_tls *self, bool *done,
                               struct error *err) SLUICE_MUST_USE;
/* After the handshake. *n_read 0: more input is needed. Returns: ST_IO, also for the end of the
 * connection. */
enum status grpc_tls_read(struct grpc_tls *self, char *data, size_t n_bytes, size_t *n_read,
                          struct error *err) SLUICE_MUST_USE;
/* After the handshake: encrypts all of `data`. Returns: ST_IO. */
enum status grpc_tls_write(struct grpc_tls *self, struct str data,
                           struct error *err) SLUICE_MUST_USE;
/* Says why the connection ended within the handshake. */
void grpc_tls_explain_end(struct grpc_tls *self, struct error *err);
/* Bytes for the server. */
size_t grpc_tls_pending(const struct grpc_tls *self);
/* Takes them out; `out` has grpc_tls_pending bytes. */
void grpc_tls_take(struct grpc_tls *self, char *out, size_t n_bytes);

#endif
