/* KServe v2 over HTTP: inputs follow from what the server says of its model. */
#include "cli/bench_client.h"
#include "cli/bench_input.h"

_Static_assert((int)BENCH_FORM_BINARY == (int)SLUICE_FORM_BINARY &&
                   (int)BENCH_FORM_JSON == (int)SLUICE_FORM_JSON &&
                   (int)BENCH_FORM_RAW == (int)SLUICE_FORM_RAW,
               "the words of --form are in the order of sluice_form");

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a request");
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
                                         .model = settings->options.model,
                                         .version = options->model_version,
                                         .inputs = inputs,
                                         .n_inputs = n,
                                         .outputs = options->outputs.items,
                                         .n_outputs = options->outputs.n,
                                         .form = (sluice_form)options->form};
    return status;
}

static enum status v2_ask(struct arena *arena, const struct bench_settings *settings,
                          sluice_client *client, struct bench_call *call, struct error *err) {
    sluice_client_error error;
    sluice_model_metadata model = {.size = sizeof(model)};
    enum status status = ask_server(arena, client, call, err);
    if (status != ST_OK || call->ping) {
        return status;
    }
    if (sluice_client_model_metadata(client, settings->options.model,
                                     settings->options.model_version, &model,
                                     &error) != SLUICE_CLIENT_OK) {
        return bench_client_refuse(&error, err);
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
    if (bench_client_open(call, &client, &error) != SLUICE_CLIENT_OK) {
        return bench_client_refuse(&error, err);
    }
    enum status status = v2_ask(arena, settings, client, call, err);
    bench_client_close(client);
    return status;
}

const struct bench_protocol bench_protocol_v2 = {
    .name = "KServe v2 over HTTP",
    .schemes = "http http+unix ",
    .prepare = v2_prepare,
    .open = bench_client_open,
    .close = bench_client_close,
    .start = v2_start,
    .step = bench_client_step,
    .wait = bench_client_wait,
    .take = v2_take,
};
