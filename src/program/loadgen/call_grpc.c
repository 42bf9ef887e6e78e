/* KServe v2 over gRPC. The calls of a thread share its connections, as those of a usual client
 * do; with --reconnect, and for the first request, an exchange has a connection of its own. A
 * connection is a client of libsluice. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

#include "client/loop.h"
#include "client/v2_grpc.h"
#include "codec/protobuf/pb.h"
#include "core/must/must.h"
#include "program/loadgen/call.h"
#include "program/requests/command_client.h"
#include "program/requests/model_names.h"

static const struct piece NOTHING = {"", 0};

struct connection {
    struct command_client client;
    bool has_started; /* calls, that are not sent */
};

/* Connections of one thread. */
struct channel {
    struct connection *connections;
    size_t n_connections, next;  /* the next exchange gets this one */
    int epoll_fd;                /* their descriptors, if there are several; else -1 */
    TAILQ_HEAD(, exchange) done; /* completed exchanges, in order of completion */
};

struct exchange {
    struct connection *connection;
    sluice_call *call;          /* NULL: none */
    bool has_ended;             /* the call */
    struct connection own;      /* if there is no channel */
    struct channel *channel;    /* NULL: it has its own */
    TAILQ_ENTRY(exchange) link; /* in channel->done */
    void *user;
    bool is_done; /* in channel->done */
};

static enum status open_client(const struct bench_call *call, struct command_client *out,
                               struct error *err) {
    const struct command_client_options options = {.server = &call->settings->server,
                                                   .tls = call->tls,
                                                   .metadata = &call->settings->options.metadata,
                                                   .connect_timeout_ns = call->timeout_ns,
                                                   .timeout_ns = call->timeout_ns,
                                                   .max_answer_bytes = BENCH_MAX_ANSWER_BYTES};
    return command_client_open(&options, out, err);
}

/* ---- server metadata ------------------------------------------------------------------------- */

/* For the report only: some servers do not answer this. */
static void describe_server(struct arena *arena, const struct command_client *client,
                            struct bench_call *call) {
    const struct client_grpc_request request = {CLIENT_GRPC_PATH("ServerMetadata"), &NOTHING, 1};
    sluice_call *question = NULL;
    struct str message;
    struct pb_field field;
    struct error ignored;
    if (command_call_run(client, &request, &question, &message, &ignored) == ST_OK) {
        struct pb_reader reader = pb_read(message);
        while (pb_next(&reader, &field)) {
            if (field.type == PB_BYTES && (field.number == 1 || field.number == 2)) {
                const char **text = field.number == 1 ? &call->server : &call->server_version;
                *text = arena_dup(arena, field.bytes).ptr;
            }
        }
    }
    sluice_call_free(question);
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum status encode_request(struct arena *arena, struct bench_call *call, struct error *err) {
    const struct bench_options *options = &call->settings->options;
    struct v2_request *request = arena_calloc(arena, 1, sizeof(*request));
    struct client_infer infer = {.model = str_of(options->model),
                                 .version = str_of(options->model_version),
                                 .request = request};
    struct v2_grpc_message message;
    bench_request_init(arena, call, &request->infer);
    enum status status = client_grpc_infer_message(arena, &infer, &message, err);
    if (status == ST_OK) {
        call->message = (struct http_message){message.pieces, message.n_pieces};
        call->n_bytes = message.n_bytes;
    }
    return status;
}

static enum status prepare_infer(struct arena *arena, const struct command_client *client,
                                 struct bench_call *call, struct error *err) {
    const struct bench_options *options = &call->settings->options;
    struct model_spec model;
    enum status status = command_client_get_model(client, arena, str_of(options->model),
                                                  str_of(options->model_version), &model, err);
    if (status == ST_OK) {
        status = bench_call_set_model(arena, &model, call, err);
    } else {
        model_names_explain_grpc(client, arena, str_of(options->model), err);
    }
    return status == ST_OK ? encode_request(arena, call, err) : status;
}

static enum status prepare(struct arena *arena, const struct bench_settings *settings,
                           struct bench_call *call, struct error *err) {
    struct command_client client;
    (void)settings;
    enum status status = open_client(call, &client, err);
    if (status != ST_OK) {
        return status;
    }
    if (call->ping) {
        call->message = (struct http_message){&NOTHING, 1};
    } else {
        status = prepare_infer(arena, &client, call, err);
    }
    if (status == ST_OK) {
        describe_server(arena, &client, call);
    }
    command_client_close(&client);
    return status;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void on_done(sluice_call *call, void *user) {
    struct exchange *exchange = user;
    struct channel *channel = exchange->channel;
    (void)call;
    exchange->has_ended = true;
    if (channel) {
        exchange->is_done = true;
        TAILQ_INSERT_TAIL(&channel->done, exchange, link);
    }
}

static enum status open_own(const struct bench_call *call, void **connection, struct error *err) {
    struct exchange *exchange = must_calloc(1, sizeof(*exchange), "a request");
    *connection = NULL;
    enum status status = open_client(call, &exchange->own.client, err);
    if (status != ST_OK) {
        free(exchange);
        return status;
    }
    exchange->connection = &exchange->own;
    *connection = exchange;
    return ST_OK;
}

static void close_exchange(void *connection) {
    struct exchange *exchange = connection;
    if (!exchange) {
        return;
    }
    if (exchange->is_done) {
        TAILQ_REMOVE(&exchange->channel->done, exchange, link);
    }
    sluice_call_free(exchange->call);
    command_client_close(&exchange->own.client);
    free(exchange);
}

static enum status start(void *connection, const struct bench_call *call, struct error *err) {
    struct exchange *exchange = connection;
    const struct client_grpc_request request = {call->ping ? CLIENT_GRPC_PATH("ServerLive")
                                                           : CLIENT_GRPC_PATH("ModelInfer"),
                                                call->message.pieces, call->message.n_pieces};
    const sluice_call_options options = {
        .size = sizeof(options), .on_done = on_done, .user = exchange};
    sluice_call_free(exchange->call);
    exchange->has_ended = false;
    exchange->connection->has_started = true;
    return command_call_start(&exchange->connection->client, &request, &options, &exchange->call,
                              err);
}

static enum status step(void *connection, bool *done, struct error *err) {
    struct exchange *exchange = connection;
    struct str message;
    int code;
    if (!exchange->channel && !exchange->has_ended) {
        sluice_client_step(exchange->own.client.client);
    }
    *done = exchange->has_ended;
    if (!*done) {
        return ST_OK;
    }
    enum status status = command_call_result(exchange->call, &message, &code, err);
    return code < 0 ? status : ST_OK; /* the server's error is reported by `take` */
}

static void wait_for_client(const struct command_client *client, struct client_waiting *waiting) {
    *waiting = (struct client_waiting){.fd = sluice_client_fd(client->client),
                                       .read = true,
                                       .timeout_ns = sluice_client_timeout_ns(client->client)};
}

static void wait_for(const void *connection, struct client_waiting *waiting) {
    const struct exchange *exchange = connection;
    if (!exchange->channel) {
        wait_for_client(&exchange->own.client, waiting);
    } else { /* the channel reports it */
        *waiting = (struct client_waiting){.fd = -1, .timeout_ns = UINT64_MAX};
    }
}

static enum status take(void *connection, const struct bench_call *call, bool whole,
                        uint64_t *n_bytes, struct bench_error *failed) {
    const struct exchange *exchange = connection;
    struct str message;
    int code;
    enum status status = command_call_result(exchange->call, &message, &code, &failed->err);
    *n_bytes = message.len;
    failed->grpc_code = code;
    if (call->ping || status != ST_OK || !whole) {
        return call->ping ? ST_OK : status;
    }
    struct arena *arena = must_arena_new("an answer");
    struct v2_client_response answer;
    status = client_grpc_infer_decode(arena, message, false, &answer, &failed->err);
    arena_free(arena);
    return status;
}

/* ---- channels -------------------------------------------------------------------------------- */

static void channel_close(void *user) {
    struct channel *channel = user;
    for (size_t i = 0; i < channel->n_connections; i++) {
        command_client_close(&channel->connections[i].client);
    }
    if (channel->epoll_fd >= 0) {
        close(channel->epoll_fd);
    }
    free(channel->connections);
    free(channel);
}

/* Adds a connection's descriptor to that of the channel. */
static enum status watch(const struct channel *channel, const struct connection *connection,
                         struct error *err) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection->client.client};
    int fd = sluice_client_fd(connection->client.client);
    return epoll_ctl(channel->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0
               ? ST_OK
               : error_set(err, ST_IO, "epoll: %s", strerror(errno));
}

static enum status open_connections(struct channel *channel, const struct bench_call *call,
                                    size_t n, struct error *err) {
    enum status status = ST_OK;
    channel->connections = must_calloc(n, sizeof(*channel->connections), "the connections");
    if (n > 1 && (channel->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        return error_set(err, ST_IO, "epoll: %s", strerror(errno));
    }
    while (status == ST_OK && channel->n_connections < n) {
        struct connection *connection = &channel->connections[channel->n_connections];
        status = open_client(call, &connection->client, err);
        if (status == ST_OK) {
            channel->n_connections++;
            status = n > 1 ? watch(channel, connection, err) : ST_OK;
        }
    }
    return status;
}

static enum status channel_open(const struct bench_call *call, unsigned n_connections, void **out,
                                struct error *err) {
    struct channel *channel = must_calloc(1, sizeof(*channel), "the connections");
    *out = NULL;
    TAILQ_INIT(&channel->done);
    channel->epoll_fd = -1;
    enum status status = open_connections(channel, call, n_connections, err);
    if (status != ST_OK) {
        channel_close(channel);
        return status;
    }
    *out = channel;
    return ST_OK;
}

/* The exchanges are spread evenly over the connections. Each connects when it is first used. */
static enum status attach(void *user, const struct bench_call *call, void *exchange_user,
                          void **connection, struct error *err) {
    struct channel *channel = user;
    struct exchange *exchange = must_calloc(1, sizeof(*exchange), "a request");
    (void)call;
    (void)err;
    *connection = exchange;
    exchange->channel = channel;
    exchange->connection = &channel->connections[channel->next];
    exchange->user = exchange_user;
    channel->next = (channel->next + 1) % channel->n_connections;
    return ST_OK;
}

static void channel_wait(const void *user, struct client_waiting *waiting) {
    const struct channel *channel = user;
    wait_for_client(&channel->connections[0].client, waiting);
    for (size_t i = 1; i < channel->n_connections; i++) {
        uint64_t ns = sluice_client_timeout_ns(channel->connections[i].client.client);
        waiting->timeout_ns = ns < waiting->timeout_ns ? ns : waiting->timeout_ns;
    }
    waiting->fd = channel->epoll_fd >= 0 ? channel->epoll_fd : waiting->fd;
}

/* With several connections only those are stepped that have something to do. */
static void channel_run(void *user) {
    enum { MAX_EVENTS = 64 };
    const struct channel *channel = user;
    struct epoll_event events[MAX_EVENTS];
    if (channel->n_connections == 1) {
        sluice_client_step(channel->connections[0].client.client);
        return;
    }
    int n = epoll_wait(channel->epoll_fd, events, MAX_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        sluice_client_step(events[i].data.ptr);
    }
    for (size_t i = 0; i < channel->n_connections; i++) {
        sluice_client *client = channel->connections[i].client.client;
        if (sluice_client_timeout_ns(client) == 0) {
            sluice_client_step(client);
        }
    }
}

static void channel_flush(void *user) {
    const struct channel *channel = user;
    for (size_t i = 0; i < channel->n_connections; i++) {
        struct connection *connection = &channel->connections[i];
        if (connection->has_started) {
            connection->has_started = false;
            client_loop_flush(connection->client.client);
        }
    }
}

static void *channel_next(void *user) {
    struct channel *channel = user;
    struct exchange *exchange = TAILQ_FIRST(&channel->done);
    if (!exchange) {
        return NULL;
    }
    TAILQ_REMOVE(&channel->done, exchange, link);
    exchange->is_done = false;
    return exchange->user;
}

static const struct bench_channel_functions CHANNEL_FUNCTIONS = {
    .open = channel_open,
    .close = channel_close,
    .attach = attach,
    .wait = channel_wait,
    .run = channel_run,
    .flush = channel_flush,
    .next = channel_next,
};

const struct bench_protocol bench_protocol_grpc = {
    .name = "KServe v2 over gRPC",
    .schemes = "grpc grpcs grpc+unix ",
    .prepare = prepare,
    .open = open_own,
    .close = close_exchange,
    .start = start,
    .step = step,
    .wait = wait_for,
    .take = take,
    .channel = &CHANNEL_FUNCTIONS,
};
