/* Public functions of sluice/client.h: KServe v2. */
#include "client/call.h"
#include "client/convert.h"
#include "client/v2.h"

static void begin_exchange(const sluice_client *client, const struct client_request *request) {
    http_session_begin(client_http(client->client),
                       (struct http_message){request->pieces, request->n_pieces});
}

static sluice_client_status start_query(sluice_client *client, const struct client_call_kind *kind,
                                        enum client_query query, const char *model,
                                        const char *version, sluice_client_error *error) {
    struct error err = {0};
    struct client_request request;
    enum status status = client_call_begin(client, kind, &err);
    if (status == ST_OK) {
        status = client_query_encode(client->arena, client_url(client->client), query,
                                     str_of(model), str_of(version), &request, &err);
    }
    if (status == ST_OK) {
        begin_exchange(client, &request);
    }
    return client_call_start(client, status, &err, 0, error);
}

/* ---- health ---------------------------------------------------------------------------------- */

static enum status finish_health(sluice_client *client, struct error *err) {
    (void)err;
    client->result.yes = http_session_status(client_http(client->client)) == 200;
    return ST_OK;
}

static const struct client_call_kind health = {"sluice_client_take_yes", finish_health};

sluice_client_status sluice_client_start_is_live(sluice_client *client,
                                                 sluice_client_error *error) {
    return start_query(client, &health, CLIENT_LIVE, NULL, NULL, error);
}

sluice_client_status sluice_client_start_is_ready(sluice_client *client,
                                                  sluice_client_error *error) {
    return start_query(client, &health, CLIENT_READY, NULL, NULL, error);
}

sluice_client_status sluice_client_start_model_is_ready(sluice_client *client, const char *model,
                                                        const char *version,
                                                        sluice_client_error *error) {
    return start_query(client, &health, CLIENT_MODEL_READY, model, version, error);
}

sluice_client_status sluice_client_take_yes(sluice_client *client, int32_t *yes,
                                            sluice_client_error *error) {
    sluice_client_status status = client_call_check_done(client, &health, error);
    *yes = status == SLUICE_CLIENT_OK ? client->result.yes : 0;
    return status;
}

static sluice_client_status run_health(sluice_client *client, sluice_client_status status,
                                       int32_t *yes, sluice_client_error *error) {
    *yes = 0;
    status = client_call_run(client, status, error);
    return status == SLUICE_CLIENT_OK ? sluice_client_take_yes(client, yes, error) : status;
}

sluice_client_status sluice_client_is_live(sluice_client *client, int32_t *yes,
                                           sluice_client_error *error) {
    return run_health(client, sluice_client_start_is_live(client, error), yes, error);
}

sluice_client_status sluice_client_is_ready(sluice_client *client, int32_t *yes,
                                            sluice_client_error *error) {
    return run_health(client, sluice_client_start_is_ready(client, error), yes, error);
}

sluice_client_status sluice_client_model_is_ready(sluice_client *client, const char *model,
                                                  const char *version, int32_t *yes,
                                                  sluice_client_error *error) {
    sluice_client_status status = sluice_client_start_model_is_ready(client, model, version, error);
    return run_health(client, status, yes, error);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static enum status finish_server(sluice_client *client, struct error *err) {
    struct v2_server_metadata server;
    enum status status =
        client_server_decode(client->arena, client_http(client->client), &server, err);
    return status == ST_OK
               ? client_server_export(client->arena, &server, &client->result.server, err)
               : status;
}

static const struct client_call_kind server_metadata = {"sluice_client_take_server_metadata",
                                                        finish_server};

sluice_client_status sluice_client_start_server_metadata(sluice_client *client,
                                                         sluice_client_error *error) {
    return start_query(client, &server_metadata, CLIENT_SERVER, NULL, NULL, error);
}

sluice_client_status sluice_client_take_server_metadata(sluice_client *client,
                                                        sluice_server_metadata *metadata,
                                                        sluice_client_error *error) {
    return client_call_take_result(client, &server_metadata, metadata, &client->result.server,
                                   sizeof(client->result.server), error);
}

sluice_client_status sluice_client_server_metadata(sluice_client *client,
                                                   sluice_server_metadata *metadata,
                                                   sluice_client_error *error) {
    sluice_client_status status = client_call_check_out(metadata, error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_client_start_server_metadata(client, error);
    }
    status = client_call_run(client, status, error);
    return status == SLUICE_CLIENT_OK ? sluice_client_take_server_metadata(client, metadata, error)
                                      : status;
}

static enum status finish_model(sluice_client *client, struct error *err) {
    struct model_spec model;
    enum status status =
        client_model_decode(client->arena, client_http(client->client), &model, err);
    return status == ST_OK ? client_model_export(client->arena, &model, &client->result.model, err)
                           : status;
}

static const struct client_call_kind model_metadata = {"sluice_client_take_model_metadata",
                                                       finish_model};

sluice_client_status sluice_client_start_model_metadata(sluice_client *client, const char *model,
                                                        const char *version,
                                                        sluice_client_error *error) {
    return start_query(client, &model_metadata, CLIENT_MODEL, model, version, error);
}

sluice_client_status sluice_client_take_model_metadata(sluice_client *client,
                                                       sluice_model_metadata *metadata,
                                                       sluice_client_error *error) {
    return client_call_take_result(client, &model_metadata, metadata, &client->result.model,
                                   sizeof(client->result.model), error);
}

sluice_client_status sluice_client_model_metadata(sluice_client *client, const char *model,
                                                  const char *version,
                                                  sluice_model_metadata *metadata,
                                                  sluice_client_error *error) {
    sluice_client_status status = client_call_check_out(metadata, error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_client_start_model_metadata(client, model, version, error);
    }
    status = client_call_run(client, status, error);
    return status == SLUICE_CLIENT_OK ? sluice_client_take_model_metadata(client, metadata, error)
                                      : status;
}

/* ---- inference ------------------------------------------------------------------------------- */

static enum status finish_infer(sluice_client *client, struct error *err) {
    struct v2_client_response answer;
    enum status status =
        client_infer_decode(client->arena, client_http(client->client), &answer, err);
    return status == ST_OK ? client_answer_export(client->arena, &answer, client->buffers,
                                                  &client->result.infer, err)
                           : status;
}

static const struct client_call_kind infer = {"sluice_client_take_infer", finish_infer};

static enum status prepare_infer(sluice_client *client, const sluice_infer_request *request,
                                 struct error *err) {
    struct client_infer call;
    struct client_request made;
    enum status status = client_infer_import(client->arena, request, &call, err);
    if (status == ST_OK) {
        status = client_infer_encode(client->arena, client_url(client->client), &call, &made, err);
    }
    if (status == ST_OK) {
        client->buffers =
            (struct client_buffers){request->buffers, request->buffers ? request->n_buffers : 0};
        begin_exchange(client, &made);
    }
    return status;
}

sluice_client_status sluice_client_start_infer(sluice_client *client,
                                               const sluice_infer_request *request,
                                               sluice_client_error *error) {
    struct error err = {0};
    sluice_infer_request given = {0};
    enum status status = client_call_begin(client, &infer, &err);
    if (status == ST_OK) {
        status = sized_struct_read(&given, sizeof(given), request, request->size, &err);
    }
    if (status == ST_OK) {
        status = prepare_infer(client, &given, &err);
    }
    return client_call_start(client, status, &err, given.timeout_ns, error);
}

sluice_client_status sluice_client_take_infer(sluice_client *client, sluice_infer_answer *answer,
                                              sluice_client_error *error) {
    return client_call_take_result(client, &infer, answer, &client->result.infer,
                                   sizeof(client->result.infer), error);
}

sluice_client_status sluice_client_infer(sluice_client *client, const sluice_infer_request *request,
                                         sluice_infer_answer *answer, sluice_client_error *error) {
    sluice_client_status status = client_call_check_out(answer, error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_client_start_infer(client, request, error);
    }
    status = client_call_run(client, status, error);
    return status == SLUICE_CLIENT_OK ? sluice_client_take_infer(client, answer, error) : status;
}
