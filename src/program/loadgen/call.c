/* The table of protocols, connections of libsluice's client, one call alone, and what inferences
 * by name have in common. */
#include "program/loadgen/call.h"

#include <poll.h>

#include "core/event/clock.h"
#include "program/loadgen/input.h"

enum { MAX_WAIT_MS = 1000 };

static const struct bench_protocol *const protocols[] = {&bench_protocol_v2, &bench_protocol_grpc,
                                                         &bench_protocol_mip};

const struct bench_protocol *bench_protocol_find(const char *url) {
    struct str rest = str_of(url);
    struct str scheme = str_cut(&rest, ':');
    for (size_t i = 0; i < sizeof(protocols) / sizeof(*protocols) && rest.ptr; i++) {
        struct str schemes = str_of(protocols[i]->schemes);
        while (schemes.len > 0) {
            if (str_eq(str_cut(&schemes, ' '), scheme)) {
                return protocols[i];
            }
        }
    }
    return NULL;
}

enum status bench_call_init(struct arena *arena, const struct bench_settings *settings,
                            const struct client_tls *tls, struct bench_call *out,
                            struct error *err) {
    const struct bench_options *options = &settings->options;
    *out = (struct bench_call){.protocol = bench_protocol_find(options->url),
                               .settings = settings,
                               .url = options->url,
                               .tls = tls,
                               .timeout_ns = options->timeout_ns,
                               .ping = options->ping,
                               .batch = options->batch,
                               .server = "",
                               .server_version = "",
                               .model_version = "",
                               .platform = ""};
    if (!out->protocol) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected http://HOST:PORT, https://HOST:PORT, http+unix:/path, "
                         "grpc://HOST:PORT, grpcs://HOST:PORT, grpc+unix:/path, tcp://HOST:PORT or "
                         "unix:///path",
                         options->url);
    }
    return out->protocol->prepare(arena, settings, out, err);
}

/* ---- connections ----------------------------------------------------------------------------- */

enum status bench_client_open(const struct bench_call *call, void **connection, struct error *err) {
    struct client_options options = {.url = str_of(call->url),
                                     .connect_timeout_ns = call->timeout_ns,
                                     .timeout_ns = call->timeout_ns,
                                     .max_answer_bytes = BENCH_MAX_ANSWER_BYTES,
                                     .tls = call->tls};
    struct client *client;
    enum status status = client_new(&options, &client, err);
    *connection = client;
    return status;
}

void bench_client_close(void *connection) {
    client_free(connection);
}

enum status bench_client_step(void *connection, bool *done, struct error *err) {
    return client_step(connection, done, err);
}

void bench_client_wait(const void *connection, struct client_waiting *waiting) {
    client_wait(connection, waiting);
}

/* ---- one call -------------------------------------------------------------------------------- */

static enum status finish_exchange(const struct bench_call *call, void *connection,
                                   struct error *err) {
    enum status status;
    bool done = false;
    while ((status = call->protocol->step(connection, &done, err)) == ST_OK && !done) {
        struct client_waiting waiting;
        call->protocol->wait(connection, &waiting);
        short events = (short)((waiting.read ? POLLIN : 0) | (waiting.write ? POLLOUT : 0));
        struct pollfd fd = {.fd = waiting.fd, .events = events}; /* -1 is ignored */
        uint64_t ms = waiting.timeout_ns / 1000000;
        (void)poll(&fd, 1,
                   waiting.timeout_ns == 0 ? 0
                   : ms < MAX_WAIT_MS      ? (int)ms + 1
                                           : MAX_WAIT_MS);
    }
    return status;
}

enum status bench_call_send_once(const struct bench_call *call, uint64_t *latency_ns,
                                 struct error *err) {
    const struct bench_protocol *protocol = call->protocol;
    struct bench_error failed = {.mip_error = -1};
    uint64_t n_bytes, started_ns = clock_now_ns();
    void *connection = NULL;
    enum status status = protocol->open(call, &connection, &failed.err);
    if (status == ST_OK) {
        status = protocol->start(connection, call, &failed.err);
    }
    if (status == ST_OK) {
        status = finish_exchange(call, connection, &failed.err);
    }
    *latency_ns = clock_now_ns() - started_ns;
    if (status == ST_OK) {
        status = protocol->take(connection, call, true, &n_bytes, &failed);
    }
    protocol->close(connection);
    *err = failed.err;
    return status;
}

/* ---- inferences by name ---------------------------------------------------------------------- */

void bench_request_init(struct arena *arena, const struct bench_call *call,
                        struct infer_request *out) {
    const struct bench_options *options = &call->settings->options;
    *out = (struct infer_request){
        .arena = arena, .id = STR(""), .n_inputs = call->n_inputs, .n_wanted = options->outputs.n};
    out->inputs = arena_calloc(arena, out->n_inputs, sizeof(*out->inputs));
    out->wanted = arena_calloc(arena, out->n_wanted, sizeof(*out->wanted));
    for (size_t i = 0; i < out->n_inputs; i++) {
        out->inputs[i].tensor = call->inputs[i];
    }
    for (size_t i = 0; i < out->n_wanted; i++) {
        out->wanted[i].name = str_of(options->outputs.items[i]);
    }
}

enum status bench_call_set_model(struct arena *arena, const struct model_spec *model,
                                 struct bench_call *call, struct error *err) {
    enum status status =
        bench_inputs_read(arena, &call->settings->options, model, &call->inputs, err);
    call->n_inputs = model->n_inputs;
    call->model_version = arena_dup(arena, model->version_text).ptr;
    call->platform = arena_dup(arena, model->platform).ptr;
    return status;
}
