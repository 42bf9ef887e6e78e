/* The table of protocols, and the rows that libsluice speaks. */
#include "cli/bench_call.h"

#include <poll.h>
#include <string.h>

#include "cli/bench_input.h"
#include "loop/clock.h"

enum { MAX_ANSWER_BYTES = 1 << 30, MAX_WAIT_MS = 1000 };

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a request");
}

/* What libsluice says, in our own vocabulary. */
static enum status refuse(const sluice_client_error *error, struct error *err) {
    enum status status = ST_IO;
    if (error->status == SLUICE_CLIENT_REFUSED) {
        status = ST_REFUSED;
    } else if (error->status == SLUICE_CLIENT_INVALID) {
        status = ST_BAD_CONFIG;
    }
    return error_set(err, status, "%s", error->text);
}

/* ---- libsluice ------------------------------------------------------------------------------- */

static sluice_client_status client_open(const struct bench_call *call, void **connection,
                                        sluice_client_error *error) {
    sluice_client_options options = {.size = sizeof(options),
                                     .url = call->url,
                                     .connect_timeout_ns = call->timeout_ns,
                                     .timeout_ns = call->timeout_ns,
                                     .max_answer_bytes = MAX_ANSWER_BYTES};
    sluice_client *client;
    sluice_client_status status = sluice_client_open(&options, &client, error);
    *connection = client;
    return status;
}

static void client_close(void *connection) {
    sluice_client_close(connection);
}

static sluice_client_status client_step(void *connection, sluice_client_error *error) {
    return sluice_client_step(connection, error);
}

static void client_wait(const void *connection, sluice_client_waiting *waiting) {
    sluice_client_wait(connection, waiting);
}

static sluice_client_status v2_start(void *connection, const struct bench_call *call,
                                     sluice_client_error *error) {
    return call->ping ? sluice_client_start_ping(connection, error)
                      : sluice_client_start_infer(connection, &call->infer, error);
}

static sluice_client_status v2_take(void *connection, const struct bench_call *call,
                                    uint64_t *n_bytes, sluice_client_error *error) {
    sluice_infer_answer answer = {.size = sizeof(answer)};
    *n_bytes = 0;
    if (call->ping) {
        return SLUICE_CLIENT_OK;
    }
    sluice_client_status status = sluice_client_take_infer(connection, &answer, error);
    for (size_t i = 0; i < answer.n_outputs && status == SLUICE_CLIENT_OK; i++) {
        *n_bytes += answer.outputs[i].n_bytes;
    }
    return status;
}

static sluice_client_status mip_start(void *connection, const struct bench_call *call,
                                      sluice_client_error *error) {
    return call->ping ? sluice_client_start_ping(connection, error)
                      : sluice_client_start_mip_infer(connection, &call->mip, error);
}

static sluice_client_status mip_take(void *connection, const struct bench_call *call,
                                     uint64_t *n_bytes, sluice_client_error *error) {
    sluice_mip_answer answer = {.size = sizeof(answer)};
    *n_bytes = 0;
    if (call->ping) {
        return SLUICE_CLIENT_OK;
    }
    sluice_client_status status = sluice_client_take_mip_infer(connection, &answer, error);
    size_t n = status == SLUICE_CLIENT_OK ? (size_t)answer.batch * answer.n_outputs : 0;
    for (size_t i = 0; i < n; i++) {
        *n_bytes += answer.items[i].n_bytes;
    }
    return status;
}

/* ---- KServe v2: what the server says of itself and the model --------------------------------- */

static enum status keep(struct arena *arena, const char *text, const char **out,
                        struct error *err) {
    *out = arena_dup(arena, str_of(text ? text : "")).ptr;
    return *out ? ST_OK : no_memory(err);
}

/* For the report only: not every server answers this. */
static enum status ask_server(struct arena *arena, sluice_client *client, struct bench_call *call,
                              struct error *err) {
    sluice_server_metadata server = {.size = sizeof(server)};
    if (sluice_client_server_metadata(client, &server, NULL) != SLUICE_CLIENT_OK) {
        return ST_OK;
    }
    enum status status = keep(arena, server.name, &call->server, err);
    return status == ST_OK ? keep(arena, server.version, &call->server_version, err) : status;
}

static enum status make_inputs(struct arena *arena, const struct bench_settings *settings,
                               const sluice_model_metadata *model, struct bench_call *call,
                               struct error *err) {
    const struct bench_options *options = &settings->options;
    const sluice_tensor *inputs;
    size_t n;
    enum status status = bench_inputs_make(arena, options, model, &inputs, &n, err);
    if (status == ST_OK && options->form == BENCH_FORM_RAW && n != 1) {
        status = error_set(err, ST_BAD_CONFIG,
                           "--form raw sends exactly one input, and the model has %zu", n);
    }
    for (size_t i = 0; i < n && status == ST_OK; i++) {
        call->n_bytes += inputs[i].n_bytes;
    }
    call->infer = (sluice_infer_request){.size = sizeof(call->infer),
                                         .model = settings->model,
                                         .version = options->model_version,
                                         .inputs = inputs,
                                         .n_inputs = n,
                                         .outputs = options->outputs.items,
                                         .n_outputs = options->outputs.n,
                                         .form = (sluice_form)options->form};
    return status;
}

_Static_assert((int)BENCH_FORM_BINARY == (int)SLUICE_FORM_BINARY &&
                   (int)BENCH_FORM_JSON == (int)SLUICE_FORM_JSON &&
                   (int)BENCH_FORM_RAW == (int)SLUICE_FORM_RAW,
               "the words of --form are in the order of sluice_form");

static enum status v2_ask(struct arena *arena, const struct bench_settings *settings,
                          sluice_client *client, struct bench_call *call, struct error *err) {
    sluice_client_error error;
    sluice_model_metadata model = {.size = sizeof(model)};
    enum status status = ask_server(arena, client, call, err);
    if (status != ST_OK || call->ping) {
        return status;
    }
    if (sluice_client_model_metadata(client, settings->model, settings->options.model_version,
                                     &model, &error) != SLUICE_CLIENT_OK) {
        return refuse(&error, err);
    }
    status = keep(arena, model.version, &call->model_version, err);
    if (status == ST_OK) {
        status = keep(arena, model.platform, &call->platform, err);
    }
    return status == ST_OK ? make_inputs(arena, settings, &model, call, err) : status;
}

static enum status v2_prepare(struct arena *arena, const struct bench_settings *settings,
                              struct bench_call *call, struct error *err) {
    sluice_client_error error;
    void *client;
    if (client_open(call, &client, &error) != SLUICE_CLIENT_OK) {
        return refuse(&error, err);
    }
    enum status status = v2_ask(arena, settings, client, call, err);
    client_close(client);
    return status;
}

static enum status mip_prepare(struct arena *arena, const struct bench_settings *settings,
                               struct bench_call *call, struct error *err) {
    (void)arena;
    (void)settings;
    (void)call;
    return call->ping ? ST_OK : error_set(err, ST_BAD_CONFIG, "MIP can only be pinged so far");
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct bench_protocol protocols[] = {
    {"KServe v2 over HTTP", "http: http+unix: ", v2_prepare, client_open, client_close, v2_start,
     client_step, client_wait, v2_take},
    {"MIP", "tcp: unix: ", mip_prepare, client_open, client_close, mip_start, client_step,
     client_wait, mip_take},
};

const struct bench_protocol *bench_protocol_find(const char *url) {
    struct str rest = str_of(url);
    struct str scheme = str_cut(&rest, ':');
    for (size_t i = 0; i < sizeof(protocols) / sizeof(*protocols) && rest.ptr; i++) {
        struct str schemes = str_of(protocols[i].schemes);
        while (schemes.ptr) {
            struct str known = str_cut(&schemes, ' ');
            if (known.len == scheme.len + 1 && memcmp(known.ptr, scheme.ptr, scheme.len) == 0) {
                return &protocols[i];
            }
        }
    }
    return NULL;
}

enum status bench_call_make(struct arena *arena, const struct bench_settings *settings,
                            struct bench_call *out, struct error *err) {
    const struct bench_options *options = &settings->options;
    *out = (struct bench_call){.protocol = bench_protocol_find(options->url),
                               .url = options->url,
                               .timeout_ns = options->timeout_ns,
                               .ping = options->ping,
                               .batch = options->batch,
                               .server = "",
                               .server_version = "",
                               .model_version = "",
                               .platform = ""};
    if (!out->protocol) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected http://HOST:PORT, http+unix:/path, tcp://HOST:PORT or "
                         "unix:///path",
                         options->url);
    }
    return out->protocol->prepare(arena, settings, out, err);
}

/* ---- one try --------------------------------------------------------------------------------- */

static void wait_for(const sluice_client_waiting *waiting) {
    struct pollfd fd = {.fd = waiting->fd,
                        .events =
                            (short)((waiting->read ? POLLIN : 0) | (waiting->write ? POLLOUT : 0))};
    uint64_t ms = waiting->timeout_ns / 1000000;
    int timeout = waiting->timeout_ns == 0 ? 0 : ms < MAX_WAIT_MS ? (int)ms + 1 : MAX_WAIT_MS;
    (void)poll(&fd, 1, timeout); /* which leaves out a descriptor of -1 */
}

static sluice_client_status finish(const struct bench_call *call, void *connection,
                                   sluice_client_error *error) {
    sluice_client_status status;
    while ((status = call->protocol->step(connection, error)) == SLUICE_CLIENT_AGAIN) {
        sluice_client_waiting waiting = {.size = sizeof(waiting)};
        call->protocol->wait(connection, &waiting);
        wait_for(&waiting);
    }
    return status;
}

enum status bench_call_try(const struct bench_call *call, uint64_t *latency_ns, struct error *err) {
    const struct bench_protocol *protocol = call->protocol;
    sluice_client_error error = {.mip_error = -1};
    uint64_t n_bytes, started_ns = clock_now_ns();
    void *connection;
    sluice_client_status status = protocol->open(call, &connection, &error);
    if (status == SLUICE_CLIENT_OK) {
        status = protocol->start(connection, call, &error);
    }
    if (status == SLUICE_CLIENT_OK) {
        status = finish(call, connection, &error);
    }
    *latency_ns = clock_now_ns() - started_ns;
    if (status == SLUICE_CLIENT_OK) {
        status = protocol->take(connection, call, &n_bytes, &error);
    }
    protocol->close(connection);
    return status == SLUICE_CLIENT_OK ? ST_OK : refuse(&error, err);
}
