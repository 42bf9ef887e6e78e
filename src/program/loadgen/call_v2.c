/* KServe v2 over HTTP: inputs are made from the model's metadata. */
#include "client/v2.h"
#include "core/must/must.h"
#include "program/loadgen/call.h"
#include "program/requests/model_names.h"

/* ---- server metadata ------------------------------------------------------------------------- */

/* For the report only: some servers do not answer this. */
static void describe_server(struct arena *arena, struct client *client, struct bench_call *call) {
    const struct client_query_args args = {.query = CLIENT_SERVER};
    struct client_request request;
    struct v2_server_metadata server;
    struct error ignored;
    enum status status = client_query_encode(arena, client_url(client), &args, &request, &ignored);
    if (status == ST_OK) {
        struct http_message message = {request.pieces, request.n_pieces};
        status = client_exchange(client, message, 0, &ignored);
    }
    if (status == ST_OK) {
        status = client_server_decode(arena, client_http(client), &server, &ignored);
    }
    if (status == ST_OK) {
        call->server = arena_dup(arena, server.name).ptr;
        call->server_version = arena_dup(arena, server.version).ptr;
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum status set_message(const struct client_request *request, struct bench_call *call) {
    call->message = (struct http_message){request->pieces, request->n_pieces};
    call->n_bytes = request->body.n_bytes;
    return ST_OK;
}

static enum status encode_request(struct arena *arena, const struct bench_options *options,
                                  const struct client_url *url, struct bench_call *call,
                                  struct error *err) {
    struct v2_request *request = arena_calloc(arena, 1, sizeof(*request));
    struct client_request made;
    struct client_infer infer = {.model = str_of(options->model),
                                 .version = str_of(options->model_version),
                                 .request = request,
                                 .raw = options->form == BENCH_FORM_RAW};
    bench_request_init(arena, call, &request->infer);
    request->binary_default = options->form == BENCH_FORM_BINARY;
    if (options->form == BENCH_FORM_JSON) {
        infer.forms = v2_forms_all(arena, call->n_inputs, V2_FORM_JSON);
    }
    enum status status = client_infer_encode(arena, url, &infer, &made, err);
    return status == ST_OK ? set_message(&made, call) : status;
}

static enum status prepare_infer(struct arena *arena, const struct bench_options *options,
                                 struct client *client, struct bench_call *call,
                                 struct error *err) {
    struct model_spec model;
    enum status status = client_model_metadata(client, arena, str_of(options->model),
                                               str_of(options->model_version), &model, err);
    if (status == ST_OK) {
        status = bench_call_set_model(arena, &model, call, err);
    } else {
        model_names_explain(client, arena, str_of(options->model), err);
    }
    if (status == ST_OK && options->form == BENCH_FORM_RAW && call->n_inputs != 1) {
        status =
            error_set(err, ST_BAD_CONFIG,
                      "--form raw sends exactly one input, and the model has %zu", call->n_inputs);
    }
    return status == ST_OK ? encode_request(arena, options, client_url(client), call, err) : status;
}

static enum status prepare_ping(struct arena *arena, const struct client_url *url,
                                struct bench_call *call, struct error *err) {
    struct client_request request;
    const struct client_query_args args = {.query = CLIENT_LIVE};
    enum status status = client_query_encode(arena, url, &args, &request, err);
    return status == ST_OK ? set_message(&request, call) : status;
}

static enum status v2_prepare(struct arena *arena, const struct bench_settings *settings,
                              struct bench_call *call, struct error *err) {
    void *client = NULL;
    enum status status = bench_client_open(call, &client, err);
    if (status == ST_OK) {
        describe_server(arena, client, call);
        status = call->ping ? prepare_ping(arena, client_url(client), call, err)
                            : prepare_infer(arena, &settings->options, client, call, err);
    }
    bench_client_close(client);
    return status;
}

/* ---- an exchange ----------------------------------------------------------------------------- */

static enum status v2_start(void *connection, const struct bench_call *call, struct error *err) {
    (void)err;
    http_session_begin(client_http(connection), call->message);
    client_start(connection, 0);
    return ST_OK;
}

/* Decodes the whole answer, for its error or to verify it. */
static enum status read_answer(const struct http_session *session, struct bench_error *failed) {
    struct arena *arena = must_arena_new("an answer");
    struct v2_client_response answer;
    enum status status = client_infer_decode(arena, session, false, &answer, &failed->err);
    arena_free(arena);
    return status;
}

static enum status v2_take(void *connection, const struct bench_call *call, bool whole,
                           uint64_t *n_bytes, struct bench_error *failed) {
    const struct http_session *session = client_http(connection);
    int status = http_session_status(session);
    *n_bytes = http_session_body(session).len;
    failed->http_status = status;
    if (call->ping || (status == 200 && !whole)) {
        return ST_OK;
    }
    return read_answer(session, failed);
}

const struct bench_protocol bench_protocol_v2 = {
    .name = "KServe v2 over HTTP",
    .schemes = "http https http+unix ",
    .prepare = v2_prepare,
    .open = bench_client_open,
    .close = bench_client_close,
    .start = v2_start,
    .step = bench_client_step,
    .wait = bench_client_wait,
    .take = v2_take,
};
