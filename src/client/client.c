/* The exchange over a socket: step does what can be done without waiting, and says what it waits
 * for; the blocking call is a loop of step and wait. */
#include "client/client.h"

#include <stdlib.h>

#include "client/client_connection.h"

enum { OUTPUT_PIECES = 64 };

struct client {
    struct arena *arena; /* of the URL */
    struct client_url url;
    struct client_options options;
    struct client_connection connection;
    struct client_session *session;
    bool reused; /* the exchange under way is not the first on its connection */
};

enum status client_new(const struct client_options *options, struct client **out,
                       struct error *err) {
    enum status status = ST_OK;
    struct client *client = calloc(1, sizeof(*client));
    *out = NULL;
    if (!client) {
        return error_set(err, ST_NO_MEMORY, "no memory for a client");
    }
    client->options = *options;
    client_connection_init(&client->connection, &client->url);
    client->arena = arena_new(NULL, 0);
    client->session = client_session_new(options->max_answer_bytes);
    if (!client->arena || !client->session) {
        status = error_set(err, ST_NO_MEMORY, "no memory for a client");
        goto out;
    }
    status = client_url_parse(client->arena, options->url, &client->url, err);
out:
    if (status == ST_OK) {
        *out = client;
    } else {
        client_free(client);
    }
    return status;
}

void client_free(struct client *client) {
    if (!client) {
        return;
    }
    client_connection_close(&client->connection);
    client_session_free(client->session);
    arena_free(client->arena);
    free(client);
}

const struct client_url *client_url(const struct client *client) {
    return &client->url;
}

const struct client_session *client_answer(const struct client *client) {
    return client->session;
}

/* Sends what fits. A connection that takes no more may still bring the answer that says why. */
static void step_output(struct client *client) {
    struct iovec pieces[OUTPUT_PIECES];
    size_t n_pieces, n_sent = 0;
    while ((n_pieces = client_session_output(client->session, pieces, OUTPUT_PIECES)) > 0) {
        if (client_connection_send(&client->connection, pieces, n_pieces, &n_sent, NULL) != ST_OK) {
            client_session_drop_output(client->session);
        } else if (n_sent == 0) {
            return;
        } else {
            client_session_sent(client->session, n_sent);
        }
    }
}

/* Receives what is there. */
static enum status step_input(struct client *client, struct error *err) {
    while (!client_session_is_done(client->session)) {
        char *at;
        size_t n_bytes, n_received = 0;
        bool ended = false;
        client_session_input(client->session, &at, &n_bytes);
        enum status status =
            client_connection_receive(&client->connection, at, n_bytes, &n_received, &ended, err);
        if (status == ST_OK && ended) {
            return client_session_closed(client->session, err);
        }
        if (status == ST_OK && n_received > 0) {
            status = client_session_received(client->session, n_received, err);
        }
        if (status != ST_OK || n_received < n_bytes) {
            return status;
        }
    }
    return ST_OK;
}

/* All that can be done without waiting. */
static enum status step(struct client *client, struct error *err) {
    if (client->connection.connecting) {
        enum status status = client_connection_proceed(&client->connection, err);
        if (status != ST_OK || client->connection.connecting) {
            return status;
        }
    }
    step_output(client);
    return step_input(client, err);
}

static bool wants_output(const struct client *client) {
    struct iovec piece;
    return client_session_output(client->session, &piece, 1) > 0;
}

static enum status timed_out(const struct client *client, uint64_t limit_ns, struct error *err) {
    const char *doing = client->connection.connecting                   ? "connecting to"
                        : client_session_is_unanswered(client->session) ? "waiting for"
                                                                        : "reading the answer of";
    struct str where = client->url.is_unix ? client->url.path : client->url.authority;
    return error_set(err, ST_DEADLINE_EXCEEDED, "timed out %s %.*s after %.3g s", doing,
                     STR_ARG(where), (double)limit_ns / 1e9);
}

static enum status wait_for_more(struct client *client, uint64_t started, uint64_t timeout_ns,
                                 struct error *err) {
    bool connecting = client->connection.connecting;
    uint64_t limit = timeout_ns, deadline;
    if (connecting && client->options.connect_timeout_ns < limit) {
        limit = client->options.connect_timeout_ns;
    }
    if (__builtin_add_overflow(started, limit, &deadline)) {
        deadline = UINT64_MAX;
    }
    if (client_connection_wait(&client->connection, !connecting, connecting || wants_output(client),
                               deadline) != ST_OK) {
        return timed_out(client, limit, err);
    }
    return ST_OK;
}

/* The exchange on the connection there is, or on a new one. */
static enum status run(struct client *client, struct client_message message, uint64_t started,
                       uint64_t timeout_ns, struct error *err) {
    enum status status = ST_OK;
    client_session_begin(client->session, message);
    if (!client->reused) {
        status = client_connection_start(&client->connection, err);
    }
    if (status == ST_OK && !client->connection.connecting) {
        status = step(client, err);
    }
    while (status == ST_OK && !client_session_is_done(client->session)) {
        status = wait_for_more(client, started, timeout_ns, err);
        if (status == ST_OK) {
            status = step(client, err);
        }
    }
    return status;
}

static bool may_repeat(const struct client *client, enum status status) {
    return client->reused && (status == ST_IO || status == ST_BAD_ANSWER) &&
           client_session_is_unanswered(client->session);
}

enum status client_exchange(struct client *client, struct client_message message,
                            uint64_t timeout_ns, struct error *err) {
    uint64_t started = client_now_ns();
    if (timeout_ns == 0) {
        timeout_ns = client->options.timeout_ns;
    }
    client->reused = client_connection_is_idle(&client->connection);
    enum status status = run(client, message, started, timeout_ns, err);
    if (may_repeat(client, status)) {
        client->reused = false;
        status = run(client, message, started, timeout_ns, err);
    }
    if (status != ST_OK || !client_session_keeps_alive(client->session)) {
        client_connection_close(&client->connection);
    }
    return status;
}
