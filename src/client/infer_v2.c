/* Public functions of sluice/client.h: KServe v2. */
#include "client/call.h"
#include "client/convert.h"
#include "client/sized_struct.h"
#include "client/v2.h"

static void set_message(sluice_call *call, const struct client_request *request) {
    call->message = (struct http_message){request->pieces, request->n_pieces};
}

enum status client_call_set_query(sluice_call *call, const struct client_query_args *args,
                                  struct error *err) {
    struct client_request request;
    call->grpc.query = args->query;
    if (call->client->url.protocol == CLIENT_GRPC) {
        return client_grpc_query_encode(call->arena, args, &call->grpc.request, err);
    }
    enum status status = client_query_encode(call->arena, &call->client->url, args, &request, err);
    if (status == ST_OK) {
        set_message(call, &request);
    }
    return status;
}

/* Arguments of the functions that start a query. */
struct query {
    const struct client_call_kind *kind;
    enum client_query query;
    const char *model, *version, *config;
    struct v2_shared_memory_region region;
};

static sluice_client_status start_query(sluice_client *client, const struct query *query,
                                        const sluice_call_options *options, sluice_call **out,
                                        sluice_client_error *error) {
    struct error err = {0};
    sluice_call *call;
    enum status status = client_call_new(client, query->kind, options, &call, &err);
    if (status == ST_OK) {
        const struct client_query_args args = {.query = query->query,
                                               .model = str_of(query->model),
                                               .version = str_of(query->version),
                                               .config = str_of(query->config),
                                               .region = query->region,
                                               .headers = call->headers};
        status = client_call_set_query(call, &args, &err);
    }
    return client_call_start(call, status, &err, out, error);
}

/* ---- health ---------------------------------------------------------------------------------- */

static enum status finish_health(sluice_call *call, struct error *err) {
    (void)err;
    call->result.yes = http_session_status(client_http(call->lane->client)) == 200;
    return ST_OK;
}

static enum status finish_health_grpc(sluice_call *call, struct str message, struct error *err) {
    bool yes = false;
    enum status status = message.ptr ? client_grpc_yes_decode(message, &yes, err) : ST_OK;
    call->result.yes = yes;
    return status;
}

static const struct client_call_kind health = {.result = CLIENT_RESULT_YES,
                                               .finish = finish_health,
                                               .finish_grpc = finish_health_grpc,
                                               .takes_errors = true};

sluice_client_status sluice_client_start_is_live(sluice_client *client,
                                                 const sluice_call_options *options,
                                                 sluice_call **call, sluice_client_error *error) {
    const struct query query = {.kind = &health, .query = CLIENT_LIVE};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_start_is_ready(sluice_client *client,
                                                  const sluice_call_options *options,
                                                  sluice_call **call, sluice_client_error *error) {
    const struct query query = {.kind = &health, .query = CLIENT_READY};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_start_model_is_ready(sluice_client *client, const char *model,
                                                        const char *version,
                                                        const sluice_call_options *options,
                                                        sluice_call **call,
                                                        sluice_client_error *error) {
    const struct query query = {
        .kind = &health, .query = CLIENT_MODEL_READY, .model = model, .version = version};
    return start_query(client, &query, options, call, error);
}

/* Waits for the answer, and frees the call. */
static sluice_client_status run_health(sluice_call *call, sluice_client_status status, int32_t *yes,
                                       sluice_client_error *error) {
    *yes = 0;
    status = client_call_run(call, status, error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_call_yes(call, yes);
    }
    sluice_call_free(call);
    return status;
}

sluice_client_status sluice_client_is_live(sluice_client *client,
                                           const sluice_call_options *options, int32_t *yes,
                                           sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status = sluice_client_start_is_live(client, options, &call, error);
    return run_health(call, status, yes, error);
}

sluice_client_status sluice_client_is_ready(sluice_client *client,
                                            const sluice_call_options *options, int32_t *yes,
                                            sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status = sluice_client_start_is_ready(client, options, &call, error);
    return run_health(call, status, yes, error);
}

sluice_client_status sluice_client_model_is_ready(sluice_client *client, const char *model,
                                                  const char *version,
                                                  const sluice_call_options *options, int32_t *yes,
                                                  sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status =
        sluice_client_start_model_is_ready(client, model, version, options, &call, error);
    return run_health(call, status, yes, error);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static enum status finish_server(sluice_call *call, struct error *err) {
    struct v2_server_metadata server;
    enum status status =
        client_server_decode(call->arena, client_http(call->lane->client), &server, err);
    return status == ST_OK ? client_server_export(call->arena, &server, &call->result.server, err)
                           : status;
}

static enum status finish_server_grpc(sluice_call *call, struct str message, struct error *err) {
    struct v2_server_metadata server;
    enum status status = client_grpc_server_decode(call->arena, message, &server, err);
    return status == ST_OK ? client_server_export(call->arena, &server, &call->result.server, err)
                           : status;
}

static const struct client_call_kind server_metadata = {
    .result = CLIENT_RESULT_SERVER, .finish = finish_server, .finish_grpc = finish_server_grpc};

sluice_client_status sluice_client_start_server_metadata(sluice_client *client,
                                                         const sluice_call_options *options,
                                                         sluice_call **call,
                                                         sluice_client_error *error) {
    const struct query query = {.kind = &server_metadata, .query = CLIENT_SERVER};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_server_metadata(sluice_client *client,
                                                   const sluice_call_options *options,
                                                   sluice_call **call, sluice_client_error *error) {
    sluice_client_status status = sluice_client_start_server_metadata(client, options, call, error);
    return client_call_run(*call, status, error);
}

static enum status finish_model(sluice_call *call, struct error *err) {
    struct model_spec model;
    enum status status =
        client_model_decode(call->arena, client_http(call->lane->client), &model, err);
    return status == ST_OK ? client_model_export(call->arena, &model, &call->result.model, err)
                           : status;
}

static enum status finish_model_grpc(sluice_call *call, struct str message, struct error *err) {
    struct model_spec model;
    enum status status = client_grpc_model_decode(call->arena, message, &model, err);
    return status == ST_OK ? client_model_export(call->arena, &model, &call->result.model, err)
                           : status;
}

static const struct client_call_kind model_metadata = {
    .result = CLIENT_RESULT_MODEL, .finish = finish_model, .finish_grpc = finish_model_grpc};

sluice_client_status sluice_client_start_model_metadata(sluice_client *client, const char *model,
                                                        const char *version,
                                                        const sluice_call_options *options,
                                                        sluice_call **call,
                                                        sluice_client_error *error) {
    const struct query query = {
        .kind = &model_metadata, .query = CLIENT_MODEL, .model = model, .version = version};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_model_metadata(sluice_client *client, const char *model,
                                                  const char *version,
                                                  const sluice_call_options *options,
                                                  sluice_call **call, sluice_client_error *error) {
    sluice_client_status status =
        sluice_client_start_model_metadata(client, model, version, options, call, error);
    return client_call_run(*call, status, error);
}

/* ---- documents ------------------------------------------------------------------------------- */

static enum status finish_text(sluice_call *call, struct error *err) {
    return client_text_decode(call->arena, client_http(call->lane->client), &call->result.text,
                              err);
}

static enum status finish_text_grpc(sluice_call *call, struct str message, struct error *err) {
    return client_grpc_text_decode(call->arena, call->grpc.query, message,
                                   call->client->options.max_answer_bytes, &call->result.text, err);
}

static const struct client_call_kind document = {
    .result = CLIENT_RESULT_TEXT, .finish = finish_text, .finish_grpc = finish_text_grpc};

sluice_client_status sluice_client_start_model_config(sluice_client *client, const char *model,
                                                      const char *version,
                                                      const sluice_call_options *options,
                                                      sluice_call **call,
                                                      sluice_client_error *error) {
    const struct query query = {
        .kind = &document, .query = CLIENT_CONFIG, .model = model, .version = version};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_model_config(sluice_client *client, const char *model,
                                                const char *version,
                                                const sluice_call_options *options,
                                                sluice_call **call, sluice_client_error *error) {
    sluice_client_status status =
        sluice_client_start_model_config(client, model, version, options, call, error);
    return client_call_run(*call, status, error);
}

sluice_client_status sluice_client_start_statistics(sluice_client *client, const char *model,
                                                    const char *version,
                                                    const sluice_call_options *options,
                                                    sluice_call **call,
                                                    sluice_client_error *error) {
    const struct query query = {
        .kind = &document, .query = CLIENT_STATISTICS, .model = model, .version = version};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_statistics(sluice_client *client, const char *model,
                                              const char *version,
                                              const sluice_call_options *options,
                                              sluice_call **call, sluice_client_error *error) {
    sluice_client_status status =
        sluice_client_start_statistics(client, model, version, options, call, error);
    return client_call_run(*call, status, error);
}

sluice_client_status sluice_client_start_repository_index(sluice_client *client,
                                                          const sluice_call_options *options,
                                                          sluice_call **call,
                                                          sluice_client_error *error) {
    const struct query query = {.kind = &document, .query = CLIENT_INDEX};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_repository_index(sluice_client *client,
                                                    const sluice_call_options *options,
                                                    sluice_call **call,
                                                    sluice_client_error *error) {
    sluice_client_status status =
        sluice_client_start_repository_index(client, options, call, error);
    return client_call_run(*call, status, error);
}

/* ---- loading and unloading ------------------------------------------------------------------- */

static enum status finish_done(sluice_call *call, struct error *err) {
    return client_done_decode(call->arena, client_http(call->lane->client), err);
}

static enum status finish_done_grpc(sluice_call *call, struct str message, struct error *err) {
    (void)call, (void)message, (void)err;
    return ST_OK;
}

static const struct client_call_kind change = {
    .result = CLIENT_RESULT_NONE, .finish = finish_done, .finish_grpc = finish_done_grpc};

/* Waits for the answer, and frees the call. */
static sluice_client_status run_change(sluice_call *call, sluice_client_status status,
                                       sluice_client_error *error) {
    status = client_call_run(call, status, error);
    sluice_call_free(call);
    return status;
}

sluice_client_status sluice_client_start_load(sluice_client *client, const char *model,
                                              const char *config,
                                              const sluice_call_options *options,
                                              sluice_call **call, sluice_client_error *error) {
    const struct query query = {
        .kind = &change, .query = CLIENT_LOAD, .model = model, .config = config};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_load(sluice_client *client, const char *model,
                                        const char *config, const sluice_call_options *options,
                                        sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status =
        sluice_client_start_load(client, model, config, options, &call, error);
    return run_change(call, status, error);
}

sluice_client_status sluice_client_start_unload(sluice_client *client, const char *model,
                                                const sluice_call_options *options,
                                                sluice_call **call, sluice_client_error *error) {
    const struct query query = {.kind = &change, .query = CLIENT_UNLOAD, .model = model};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_unload(sluice_client *client, const char *model,
                                          const sluice_call_options *options,
                                          sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status = sluice_client_start_unload(client, model, options, &call, error);
    return run_change(call, status, error);
}

/* ---- shared memory --------------------------------------------------------------------------- */

sluice_client_status sluice_client_start_register_shm(
    sluice_client *client, const char *name, const char *key, uint64_t offset, uint64_t n_bytes,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error) {
    const struct query query = {.kind = &change,
                                .query = CLIENT_SHM_REGISTER,
                                .region = {str_of(name), str_of(key), offset, n_bytes}};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_register_shm(sluice_client *client, const char *name,
                                                const char *key, uint64_t offset, uint64_t n_bytes,
                                                const sluice_call_options *options,
                                                sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status =
        sluice_client_start_register_shm(client, name, key, offset, n_bytes, options, &call, error);
    return run_change(call, status, error);
}

sluice_client_status sluice_client_start_unregister_shm(sluice_client *client, const char *name,
                                                        const sluice_call_options *options,
                                                        sluice_call **call,
                                                        sluice_client_error *error) {
    const struct query query = {
        .kind = &change, .query = CLIENT_SHM_UNREGISTER, .region.name = str_of(name)};
    return start_query(client, &query, options, call, error);
}

sluice_client_status sluice_client_unregister_shm(sluice_client *client, const char *name,
                                                  const sluice_call_options *options,
                                                  sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status =
        sluice_client_start_unregister_shm(client, name, options, &call, error);
    return run_change(call, status, error);
}

/* ---- inference ------------------------------------------------------------------------------- */

static enum status finish_infer(sluice_call *call, struct error *err) {
    struct v2_client_response answer;
    enum status status = client_infer_decode(call->arena, client_http(call->lane->client),
                                             call->buffers.has_shm, &answer, err);
    return status == ST_OK ? client_answer_export(call->arena, &answer, call->buffers,
                                                  &call->result.answer, err)
                           : status;
}

static enum status finish_infer_grpc(sluice_call *call, struct str message, struct error *err) {
    struct v2_client_response answer;
    enum status status =
        client_grpc_infer_decode(call->arena, message, call->buffers.has_shm, &answer, err);
    return status == ST_OK ? client_answer_export(call->arena, &answer, call->buffers,
                                                  &call->result.answer, err)
                           : status;
}

static const struct client_call_kind infer = {
    .result = CLIENT_RESULT_ANSWER, .finish = finish_infer, .finish_grpc = finish_infer_grpc};

/* Over gRPC the deadline is sent in another way. */
static uint64_t timeout_parameter(const sluice_call *call) {
    enum { NS_PER_US = 1000 };
    bool is_sent = call->has_timeout && call->client->url.protocol == CLIENT_HTTP;
    return is_sent ? (call->timeout_ns + NS_PER_US - 1) / NS_PER_US : 0;
}

static enum status prepare_infer(sluice_call *call, const sluice_infer_request *request,
                                 struct error *err) {
    sluice_infer_request given;
    struct client_infer made;
    struct client_request encoded;
    enum status status = sized_struct_read(&given, offsetof(sluice_infer_request, reserved),
                                           request, "sluice_infer_request", err);
    if (status == ST_OK) {
        status = client_infer_import(call->arena, &given, timeout_parameter(call), &made,
                                     &call->buffers, err);
    }
    if (status == ST_OK && call->client->url.protocol == CLIENT_GRPC) {
        return client_grpc_infer_encode(call->arena, &made, &call->grpc.request, err);
    }
    if (status == ST_OK) {
        made.headers = call->headers;
        status = client_infer_encode(call->arena, &call->client->url, &made, &encoded, err);
    }
    if (status == ST_OK) {
        set_message(call, &encoded);
    }
    return status;
}

sluice_client_status sluice_client_start_infer(sluice_client *client,
                                               const sluice_infer_request *request,
                                               const sluice_call_options *options,
                                               sluice_call **out, sluice_client_error *error) {
    struct error err = {0};
    sluice_call *call;
    enum status status = client_call_new(client, &infer, options, &call, &err);
    if (status == ST_OK) {
        status = prepare_infer(call, request, &err);
    }
    return client_call_start(call, status, &err, out, error);
}

sluice_client_status sluice_client_infer(sluice_client *client, const sluice_infer_request *request,
                                         const sluice_call_options *options, sluice_call **call,
                                         sluice_client_error *error) {
    sluice_client_status status = sluice_client_start_infer(client, request, options, call, error);
    return client_call_run(*call, status, error);
}
