/* A client of one server: one connection, one exchange at a time, with deadlines. An exchange is
 * begun and then stepped without ever waiting (but for the lookup of a name); what is waited for is
 * told. What is asked is the business of v2.h and mip.h. The public interface
 * (sluice/client.h) and the command line both stand on it.
 *
 *     http_session_begin(client_http(client), …) or mip_session_begin_…(client_mip(client), …)
 *     → client_start → client_step, client_wait, client_step, … → done
 *
 * Thread: one at a time. */
#ifndef SLUICE_CLIENT_CLIENT_H
#define SLUICE_CLIENT_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "client/http_session.h"
#include "client/mip_session.h"
#include "client/url.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "sluice/client.h"

struct client;

/* What holds where a caller says nothing. */
#define CLIENT_CONNECT_TIMEOUT_NS UINT64_C(10000000000)
#define CLIENT_TIMEOUT_NS UINT64_C(60000000000)
#define CLIENT_MAX_ANSWER_BYTES (UINT64_C(1) << 30)

struct client_options {
    struct str url;
    uint64_t connect_timeout_ns;              /* for connecting, a transport's handshake included */
    uint64_t timeout_ns;                      /* for a whole exchange */
    uint64_t idle_timeout_ns;                 /* without a byte moving, once connected; 0: none */
    uint64_t max_answer_bytes;                /* the body or payload of an answer */
    const sluice_client_transport *transport; /* copied; NULL: the socket itself */
    void (*transport_free)(void *context);    /* when the client is freed, or not made; may be
                                                 NULL */
};

/* Makes a client; connects when the first exchange needs it. Returns: ST_BAD_CONFIG for the URL. */
enum status client_new(const struct client_options *options, struct client **out, struct error *err)
    __attribute__((warn_unused_result));
void client_free(struct client *client);

const struct client_url *client_url(const struct client *client);

/* The session of the URL's protocol: an exchange is begun there, and its answer lies there until
 * the next one begins. Not of the other protocol. */
struct http_session *client_http(const struct client *client);
struct mip_session *client_mip(const struct client *client);

/* Starts the exchange that the session has begun, to be done within `timeout_ns` (0: the client's
 * own). Nothing is sent before the first step. Not while another is under way. */
void client_start(struct client *client, uint64_t timeout_ns);
/* Goes on as far as that is possible now. A connection is used again where the server allows; on
 * one that was used before, the message is sent a second time, on a new connection, when it ended
 * without a byte of an answer.
 * Returns: ST_OK with *done or not yet; ST_IO, ST_DEADLINE_EXCEEDED, ST_BAD_ANSWER, ST_NO_MEMORY,
 * with which the exchange is over. */
enum status client_step(struct client *client, bool *done, struct error *err)
    __attribute__((warn_unused_result));
/* Gives the exchange up, and the connection with it. */
void client_cancel(struct client *client);

struct client_waiting {
    int fd; /* -1: none */
    bool read, write;
    uint64_t timeout_ns; /* from now; UINT64_MAX: for ever, as no exchange is under way */
};

/* What the exchange under way waits for: step when it is there, at the latest behind the
 * timeout. */
void client_wait(const struct client *client, struct client_waiting *out);

/* Steps and waits until the exchange is done. Returns: as client_step. */
enum status client_run(struct client *client, struct error *err)
    __attribute__((warn_unused_result));

/* One exchange of HTTP: begun, started and run. */
enum status client_exchange(struct client *client, struct http_message message, uint64_t timeout_ns,
                            struct error *err) __attribute__((warn_unused_result));

#endif
