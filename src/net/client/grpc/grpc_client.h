/* A gRPC client on a worker's event loop: calls of one server (net/client/grpc_session/call.h), any
 * number in flight on one connection.
 *
 * The connection is opened on demand. A call waits for it; when an attempt fails, all waiting calls
 * fail with the reason, and so does every call until the next attempt, after a backoff that doubles
 * with each failure. After GOAWAY a connection finishes its calls while new ones start on another.
 *
 * Thread: the client's worker, for everything. */
#ifndef SLUICE_NET_CLIENT_GRPC_GRPC_CLIENT_H
#define SLUICE_NET_CLIENT_GRPC_GRPC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "net/client/grpc_session/call.h"

struct grpc_client;

/* Starts a call. Returns: ST_BAD_FIELD for metadata that HTTP does not allow, ST_NO_MEMORY. Owns:
 * *out until GRPC_CLIENT_END. */
enum status grpc_client_start_call(struct grpc_client *client,
                                   const struct grpc_client_call_options *options,
                                   struct grpc_client_call **out,
                                   struct error *err) SLUICE_MUST_USE;

/* ---- the client ------------------------------------------------------------------------------ */

/* TLS to the server. Paths are of PEM files, read with each connection; the settings are their
 * names in messages. */
struct grpc_client_tls {
    const char *ca;   /* trusted CAs; NULL: the system's */
    const char *cert; /* client certificate; NULL: none */
    const char *key;  /* its key; NULL: in the same file */
    const char *ca_setting, *cert_setting, *key_setting;
};

/* Reads the files. Returns: ST_BAD_CONFIG with the file, ST_NO_MEMORY. Thread: any. */
enum status grpc_client_tls_check(const struct grpc_client_tls *files,
                                  struct error *err) SLUICE_MUST_USE;

/* Read during grpc_client_new only. */
struct grpc_client_options {
    struct worker *worker;
    /* "HOST:PORT" (a name or an address), "[v6]:PORT", "unix:/path". */
    struct str target;
    struct str authority;              /* sent in requests; "": the target, or localhost */
    const struct grpc_client_tls *tls; /* must outlive the client; NULL: none */
    struct grpc_client_limits limits;
};

/* Creates a client; connects on the first call. Returns: ST_BAD_CONFIG for the target or a
 * file of TLS, ST_NO_MEMORY. Owns: *out until grpc_client_free. */
enum status grpc_client_new(const struct grpc_client_options *options, struct grpc_client **out,
                            struct error *err) SLUICE_MUST_USE;
/* Ends all calls with ST_CANCELLED, then closes the connections; calls `done` when all are
 * closed. */
void grpc_client_stop(struct grpc_client *client, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void grpc_client_free(struct grpc_client *client);
/* Returns: the number of connections on which calls can start. For tests: no call and no answer
 * shows when a GOAWAY has taken a connection out of use. */
size_t grpc_client_n_connected(const struct grpc_client *client);

#endif
