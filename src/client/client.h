/* A client of one server: one connection, one exchange at a time, with deadlines. What is asked is
 * the business of client_v2; this knows HTTP only. The public interface (sluice/client.h) and the
 * command line both stand on it.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CLIENT_CLIENT_H
#define SLUICE_CLIENT_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "client/client_session.h"
#include "client/client_url.h"

struct client;

/* What holds where a caller says nothing. */
#define CLIENT_CONNECT_TIMEOUT_NS UINT64_C(10000000000)
#define CLIENT_TIMEOUT_NS UINT64_C(60000000000)
#define CLIENT_MAX_ANSWER_BYTES (UINT64_C(1) << 30)

struct client_options {
    struct str url;
    uint64_t connect_timeout_ns; /* for connecting, within the exchange's own */
    uint64_t timeout_ns;         /* for a whole exchange */
    uint64_t max_answer_bytes;   /* the body of an answer */
};

/* Makes a client; connects when the first exchange needs it. Returns: ST_BAD_CONFIG for the URL. */
enum status client_new(const struct client_options *options, struct client **out, struct error *err)
    __attribute__((warn_unused_result));
void client_free(struct client *client);

const struct client_url *client_url(const struct client *client);

/* One exchange: sends the message and waits for the whole answer, for at most `timeout_ns` (0: the
 * client's own). A connection is used again where the server allows; on one that was used before,
 * the message is sent a second time, on a new connection, when it ended without a byte of an
 * answer.
 * Returns: ST_IO, ST_DEADLINE_EXCEEDED, ST_BAD_ANSWER, ST_NO_MEMORY; whatever the answer's status
 * is, ST_OK. The answer lies in the session until the next exchange. */
enum status client_exchange(struct client *client, struct client_message message,
                            uint64_t timeout_ns, struct error *err)
    __attribute__((warn_unused_result));
const struct client_session *client_answer(const struct client *client);

#endif
