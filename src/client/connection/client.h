/* A client of one server: one connection, one exchange at a time, with deadlines. An exchange is
 * prepared in the session and then stepped without blocking; client_wait returns the descriptor and
 * timeout to wait for. v2.h and mip.h encode the requests. The public interface (sluice/client.h)
 * and the command line both use it.
 *
 *     http_session_begin(client_http(client), …) or mip_session_begin_…(client_mip(client), …)
 *     → client_start → client_step, client_wait, client_step, … → done
 *
 * Back pressure: a step sends only as much as the socket takes, from the caller's own memory;
 * nothing is buffered. Thread: one at a time. */
#ifndef SLUICE_CLIENT_CONNECTION_CLIENT_H
#define SLUICE_CLIENT_CONNECTION_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "client/connection/connection.h"
#include "client/connection/http_session.h"
#include "client/connection/mip_session.h"
#include "client/connection/tls.h"
#include "client/connection/url.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "sluice/client.h"

struct client;

/* Defaults. */
#define CLIENT_CONNECT_TIMEOUT_NS UINT64_C(10000000000)
#define CLIENT_TIMEOUT_NS UINT64_C(60000000000)
#define CLIENT_MAX_ANSWER_BYTES (UINT64_C(1) << 30)

struct client_options {
    struct str url;
    uint64_t connect_timeout_ns;              /* connecting, including a transport's handshake */
    uint64_t timeout_ns;                      /* a whole exchange */
    uint64_t idle_timeout_ns;                 /* no byte moved, once connected; 0: no limit */
    uint64_t max_answer_bytes;                /* limit for the body or payload of an answer */
    const sluice_client_transport *transport; /* copied; NULL: the plain socket */
    const struct client_tls *tls;             /* TLS in place of a transport; NULL: none. Must
                                                 outlive the client */
    const struct client_resolver_options *resolving; /* NULL: the defaults. Must outlive it, too */
};

/* Makes a client; it connects when the first exchange needs it. Returns: ST_BAD_CONFIG for the
 * URL; ST_UNSUPPORTED for a protocol that this module does not have. */
enum status client_new(const struct client_options *options, struct client **out,
                       struct error *err) SLUICE_MUST_USE;
void client_free(struct client *client);

const struct client_url *client_url(const struct client *client);

/* The session of the URL's protocol: an exchange is prepared there, and its answer is there
 * until the next one begins. Must match the URL's protocol. */
struct http_session *client_http(const struct client *client);
struct mip_session *client_mip(const struct client *client);

/* Starts the exchange that the session has prepared, to be done within `timeout_ns` (0: the
 * client's default). Nothing is sent before the first step. Not while another is under way. */
void client_start(struct client *client, uint64_t timeout_ns);
/* The same, for an exchange that has waited since `started_ns`, from where its timeout counts. */
void client_start_since(struct client *client, uint64_t started_ns, uint64_t timeout_ns);
/* Proceeds without blocking. A connection is reused if the server allows; if a reused connection
 * is closed before a byte of an answer came, the request is sent once more on a new one.
 * Returns: ST_OK with *done or not yet; on ST_IO, ST_DEADLINE_EXCEEDED, ST_BAD_ANSWER,
 * ST_BODY_TOO_LARGE, ST_NO_MEMORY the exchange has failed. */
enum status client_step(struct client *client, bool *done, struct error *err) SLUICE_MUST_USE;
/* While paused an exchange sends its request and reads nothing of its answer; time without a byte
 * does not count. */
void client_set_paused(struct client *client, bool paused);
/* Cancels the exchange and closes the connection. */
void client_cancel(struct client *client);

/* Of the exchange under way, or the last one: how far its last connection came, and whether bytes
 * of its request were sent. */
enum client_phase client_phase(const struct client *client);
bool client_has_sent(const struct client *client);

struct client_waiting {
    int fd; /* -1: none */
    bool read, write;
    uint64_t timeout_ns; /* from now; UINT64_MAX: no exchange is under way */
};

/* When the next step is due if the descriptor is not ready before: 0: now; UINT64_MAX: no exchange
 * is under way. */
uint64_t client_due_ns(const struct client *client);
/* The socket, if it is connected or connecting, else -1; *n_sockets tells apart two with the same
 * number. */
int client_socket(const struct client *client, uint64_t *n_sockets);
/* Between exchanges: closes the connection if it can't be reused. */
void client_check_idle(struct client *client);

/* What the exchange waits for: step when the descriptor is ready, or after the timeout. */
void client_wait(const struct client *client, struct client_waiting *out);

/* Steps and polls until the exchange is done. Returns: as client_step. */
enum status client_run(struct client *client, struct error *err) SLUICE_MUST_USE;

/* One HTTP exchange: prepared, started and run. */
enum status client_exchange(struct client *client, struct http_message message, uint64_t timeout_ns,
                            struct error *err) SLUICE_MUST_USE;

#endif
