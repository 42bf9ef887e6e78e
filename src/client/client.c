/* A client's beginning and end, what it waits for, and the call that waits: a loop of step and
 * poll. */
#include "client/client.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>

#include "client/state.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a client");
}

/* ---- new and free ---------------------------------------------------------------------------- */

static void free_transport(const struct client_options *options, void *context) {
    if (options->transport_free) {
        options->transport_free(context);
    }
}

static enum status check_transport(const struct client *client, struct error *err) {
    const sluice_client_transport *transport = client->options.transport;
    if (client->url.protocol == CLIENT_GRPC) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%.*s\": libsluice does not speak gRPC; the same server's HTTP is at "
                         "http://HOST:PORT",
                         STR_ARG(client->url.text));
    }
    if (!transport && client->url.is_tls) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%.*s\": TLS needs a transport, and this client has none "
                         "(sluice_client_options.transport); without TLS it is http://",
                         STR_ARG(client->url.text));
    }
    if (transport && (!transport->start || !transport->read || !transport->write)) {
        return error_set(err, ST_BAD_CONFIG, "the transport lacks its start, read or write");
    }
    return ST_OK;
}

static enum status make_session(struct client *client, struct error *err) {
    uint64_t max_bytes = client->options.max_answer_bytes;
    if (client->url.protocol == CLIENT_HTTP) {
        client->http = http_session_new(max_bytes);
        client->session = client->http ? http_session_base(client->http) : NULL;
    } else {
        client->mip = mip_session_new(max_bytes);
        client->session = client->mip ? mip_session_base(client->mip) : NULL;
    }
    return client->session ? ST_OK : no_memory(err);
}

enum status client_new(const struct client_options *options, struct client **out,
                       struct error *err) {
    struct client *client = calloc(1, sizeof(*client));
    void *transport_context = options->transport ? options->transport->context : NULL;
    *out = NULL;
    if (!client) {
        free_transport(options, transport_context);
        return no_memory(err);
    }
    client->options = *options;
    client->transport_context = transport_context;
    client->connection.fd = -1;
    client->arena = arena_new(NULL, 0);
    enum status status = client->arena
                             ? client_url_parse(client->arena, options->url, &client->url, err)
                             : no_memory(err);
    if (status == ST_OK) {
        status = check_transport(client, err);
    }
    if (status == ST_OK) {
        status = client_connection_init(&client->connection, &client->url, options->transport, err);
    }
    if (status == ST_OK) {
        status = make_session(client, err);
    }
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
    client_connection_fini(&client->connection);
    http_session_free(client->http);
    mip_session_free(client->mip);
    arena_free(client->arena);
    free_transport(&client->options, client->transport_context);
    free(client);
}

const struct client_url *client_url(const struct client *client) {
    return &client->url;
}

struct http_session *client_http(const struct client *client) {
    assert(client->http);
    return client->http;
}

struct mip_session *client_mip(const struct client *client) {
    assert(client->mip);
    return client->mip;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Until when nothing needs to be done, if no descriptor is ready before. */
static uint64_t next_step_ns(const struct client *client, uint64_t now) {
    enum client_deadline which;
    uint64_t retry_at = client->connection.retry_at_ns;
    uint64_t deadline = client_deadline_ns(client, &which);
    if (client->state == CLIENT_STARTED || client->step_again) {
        return now;
    }
    return retry_at > 0 && retry_at < deadline ? retry_at : deadline;
}

void client_wait(const struct client *client, struct client_waiting *out) {
    *out = (struct client_waiting){.fd = -1, .timeout_ns = UINT64_MAX};
    if (client->state == CLIENT_IDLE) {
        return;
    }
    uint64_t now = client_now_ns(), until = next_step_ns(client, now);
    out->timeout_ns = until > now ? until - now : 0;
    if (client->state == CLIENT_CONNECTING && client->connection.retry_at_ns == 0) {
        out->fd = client->connection.fd;
        out->write = true;
    } else if (client->state == CLIENT_EXCHANGING) {
        out->fd = client->connection.fd;
        out->read = client->wants_read;
        out->write = client->wants_write;
    }
}

static void poll_for(const struct client_waiting *waiting) {
    enum { HOUR_MS = 3600000, NS_PER_MS = 1000000 };
    struct pollfd fd = {.fd = waiting->fd,
                        .events =
                            (short)((waiting->read ? POLLIN : 0) | (waiting->write ? POLLOUT : 0))};
    uint64_t ms = waiting->timeout_ns / NS_PER_MS + (waiting->timeout_ns % NS_PER_MS > 0);
    (void)poll(&fd, 1, ms > HOUR_MS ? HOUR_MS : (int)ms); /* too early is no harm */
}

enum status client_run(struct client *client, struct error *err) {
    for (;;) {
        bool done;
        struct client_waiting waiting;
        enum status status = client_step(client, &done, err);
        if (status != ST_OK || done) {
            return status;
        }
        client_wait(client, &waiting);
        poll_for(&waiting);
    }
}

enum status client_exchange(struct client *client, struct http_message message, uint64_t timeout_ns,
                            struct error *err) {
    http_session_begin(client_http(client), message);
    client_start(client, timeout_ns);
    return client_run(client, err);
}
