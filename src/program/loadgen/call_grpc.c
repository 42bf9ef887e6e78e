/* KServe v2 over gRPC. The calls of a thread share its connections, as those of a usual client
 * do; with --reconnect, and for the first request, an exchange has a connection of its own. */
#include <stdlib.h>
#include <sys/queue.h>

#include "client/v2_grpc.h"
#include "codec/protobuf/pb.h"
#include "program/loadgen/call.h"
#include "program/requests/grpc_link.h"

/* Connections of one thread. */
struct channel {
    struct grpc_link *link;
    TAILQ_HEAD(, exchange) done; /* completed exchanges, in order of completion */
};

struct exchange {
    struct grpc_link_call call;
    struct grpc_link *own; /* NULL: it uses the channel's */
    struct channel *channel;
    TAILQ_ENTRY(exchange) link; /* in channel->done */
    void *user;
    bool is_done; /* in channel->done */
};

static enum status open_link(const struct bench_call *call, unsigned n_connections,
                             struct grpc_link **out, struct error *err) {
    struct tls_client_options tls = bench_tls_options(&call->settings->options);
    struct grpc_link_options options = {.server = &call->settings->server,
                                        .tls = &tls,
                                        .metadata = &call->settings->options.metadata,
                                        .connect_timeout_ns = call->timeout_ns,
                                        .max_answer_bytes = BENCH_MAX_ANSWER_BYTES,
                                        .n_connections = n_connections};
    return grpc_link_open(&options, out, err);
}

/* ---- server metadata ------------------------------------------------------------------------- */

/* For the report only: some servers do not answer this. */
static enum status describe_server(struct arena *arena, struct grpc_link *link,
                                   struct bench_call *call, struct error *err) {
    const struct piece nothing = {"", 0};
    struct grpc_link_call question = {0};
    struct pb_field field;
    struct error ignored;
    enum status status = ST_OK;
    if (grpc_link_call_start(link, &question, CLIENT_GRPC_PATH("ServerMetadata"), &nothing, 1,
                             call->timeout_ns, &ignored) == ST_OK &&
        grpc_link_call_wait(&question, &ignored) == ST_OK) {
        struct pb_reader reader = pb_read(question.message->data);
        while (status == ST_OK && pb_next(&reader, &field)) {
            if (field.type == PB_BYTES && (field.number == 1 || field.number == 2)) {
                status =
                    bench_text_dup(arena, field.bytes,
                                   field.number == 1 ? &call->server : &call->server_version, err);
            }
        }
    }
    grpc_link_call_fini(&question);
    return status;
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum status encode_request(struct arena *arena, struct bench_call *call, struct error *err) {
    const struct bench_options *options = &call->settings->options;
    struct v2_request *request = arena_calloc(arena, 1, sizeof(*request));
    struct client_infer infer = {.model = str_of(options->model),
                                 .version = str_of(options->model_version),
                                 .request = request};
    struct v2_grpc_message message;
    if (!request) {
        return error_no_memory(err, "a request");
    }
    enum status status = bench_request_init(arena, call, &request->infer, err);
    if (status == ST_OK) {
        status = client_grpc_infer_message(arena, &infer, &message, err);
    }
    if (status == ST_OK) {
        call->message = (struct http_message){message.pieces, message.n_pieces};
        call->n_bytes = message.n_bytes;
    }
    return status;
}

static enum status prepare_infer(struct arena *arena, struct grpc_link *link,
                                 struct bench_call *call, struct error *err) {
    const struct bench_options *options = &call->settings->options;
    struct model_spec model;
    enum status status =
        grpc_link_get_model(link, arena, str_of(options->model), str_of(options->model_version),
                            call->timeout_ns, &model, err);
    if (status == ST_OK) {
        status = bench_call_set_model(arena, &model, call, err);
    }
    return status == ST_OK ? encode_request(arena, call, err) : status;
}

static enum status prepare(struct arena *arena, const struct bench_settings *settings,
                           struct bench_call *call, struct error *err) {
    static const struct piece NOTHING = {"", 0};
    struct grpc_link *link;
    (void)settings;
    enum status status = open_link(call, 1, &link, err);
    if (status != ST_OK) {
        return status;
    }
    if (call->ping) {
        call->message = (struct http_message){&NOTHING, 1};
    } else {
        status = prepare_infer(arena, link, call, err);
    }
    if (status == ST_OK) {
        status = describe_server(arena, link, call, err);
    }
    grpc_link_close(link);
    return status;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void on_done(struct grpc_link_call *call) {
    struct exchange *exchange = call->user;
    struct channel *channel = exchange->channel;
    if (!channel) {
        return;
    }
    exchange->is_done = true;
    TAILQ_INSERT_TAIL(&channel->done, exchange, link);
}

static struct exchange *exchange_new(void) {
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    if (exchange) {
        exchange->call.user = exchange;
        exchange->call.on_done = on_done;
    }
    return exchange;
}

static enum status open_own(const struct bench_call *call, void **connection, struct error *err) {
    struct exchange *exchange = exchange_new();
    *connection = NULL;
    if (!exchange) {
        return error_no_memory(err, "a request");
    }
    enum status status = open_link(call, 1, &exchange->own, err);
    if (status != ST_OK) {
        free(exchange);
        return status;
    }
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
    grpc_link_call_fini(&exchange->call);
    grpc_link_close(exchange->own);
    free(exchange);
}

static enum status start(void *connection, const struct bench_call *call, struct error *err) {
    struct exchange *exchange = connection;
    struct grpc_link *link = exchange->own ? exchange->own : exchange->channel->link;
    return grpc_link_call_start(
        link, &exchange->call,
        call->ping ? CLIENT_GRPC_PATH("ServerLive") : CLIENT_GRPC_PATH("ModelInfer"),
        call->message.pieces, call->message.n_pieces, call->timeout_ns, err);
}

static enum status step(void *connection, bool *done, struct error *err) {
    struct exchange *exchange = connection;
    struct grpc_link_call *call = &exchange->call;
    if (exchange->own && call->call) {
        grpc_link_run(exchange->own);
    }
    *done = !call->call;
    /* the server's error is reported by `take` */
    return *done && call->code < 0 ? grpc_link_call_error(call, err) : ST_OK;
}

static void wait_for(const void *connection, struct client_waiting *waiting) {
    const struct exchange *exchange = connection;
    if (exchange->own) {
        grpc_link_wait(exchange->own, waiting);
    } else { /* the channel reports it */
        *waiting = (struct client_waiting){.fd = -1, .timeout_ns = UINT64_MAX};
    }
}

static enum status take(void *connection, const struct bench_call *call, bool whole,
                        uint64_t *n_bytes, struct bench_error *failed) {
    struct exchange *exchange = connection;
    const struct grpc_message *message = exchange->call.message;
    enum status status = grpc_link_call_error(&exchange->call, &failed->err);
    *n_bytes = message ? message->data.len : 0;
    failed->grpc_code = exchange->call.code;
    if (call->ping || status != ST_OK || !whole || !message) { /* a successful call always has a
                                                                  message */
        return call->ping ? ST_OK : status;
    }
    struct arena *arena = arena_new(NULL, 0);
    struct v2_client_response answer;
    if (!arena) {
        return error_no_memory(&failed->err, "a request");
    }
    status = client_grpc_infer_decode(arena, message->data, false, &answer, &failed->err);
    arena_free(arena);
    return status;
}

/* ---- channels -------------------------------------------------------------------------------- */

static enum status channel_open(const struct bench_call *call, unsigned n_connections, void **out,
                                struct error *err) {
    struct channel *channel = calloc(1, sizeof(*channel));
    enum status status = channel ? open_link(call, n_connections, &channel->link, err)
                                 : error_no_memory(err, "a request");
    if (status != ST_OK) {
        free(channel);
        channel = NULL;
    } else {
        TAILQ_INIT(&channel->done);
    }
    *out = channel;
    return status;
}

static void channel_close(void *user) {
    struct channel *channel = user;
    grpc_link_close(channel->link);
    free(channel);
}

static enum status attach(void *user, const struct bench_call *call, void *exchange_user,
                          void **connection, struct error *err) {
    struct exchange *exchange = exchange_new();
    (void)call;
    *connection = exchange;
    if (!exchange) {
        return error_no_memory(err, "a request");
    }
    exchange->channel = user;
    exchange->user = exchange_user;
    return ST_OK;
}

static void channel_wait(const void *user, struct client_waiting *waiting) {
    const struct channel *channel = user;
    grpc_link_wait(channel->link, waiting);
}

static void channel_run(void *user) {
    const struct channel *channel = user;
    grpc_link_run(channel->link);
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
