/* Public functions of sluice/client.h: inference over MIP. */
#include "client/call.h"
#include "client/mip.h"

static enum status finish_infer(sluice_client *client, struct error *err) {
    struct mip_session *session = client_mip(client->client);
    enum status status = client_mip_check(session, client->answer_buffer.n_bytes, err);
    if (status != ST_OK) {
        return status;
    }
    return client_mip_export(client->arena, mip_session_payload(session), &client->mip_request,
                             &client->result.mip, err);
}

static const struct client_call_kind infer = {"sluice_client_take_mip_infer", finish_infer};

static enum status prepare_infer(sluice_client *client, const sluice_mip_request *request,
                                 struct error *err) {
    uint32_t n_bytes = 0;
    const struct client_url *url = client_url(client->client);
    enum status status = client_url_expect(url, CLIENT_MIP, "an inference of items", err);
    if (status == ST_OK) {
        status = client_mip_import(client->arena, request, &client->mip_request, &n_bytes, err);
    }
    if (status != ST_OK) {
        return status;
    }
    client->answer_buffer = request->buffer;
    return mip_session_begin_infer(client_mip(client->client), &client->mip_request, n_bytes,
                                   client->answer_buffer.data, client->answer_buffer.n_bytes, err);
}

sluice_client_status sluice_client_start_mip_infer(sluice_client *client,
                                                   const sluice_mip_request *request,
                                                   sluice_client_error *error) {
    struct error err = {0};
    sluice_mip_request given = {0};
    enum status status = client_call_begin(client, &infer, &err);
    if (status == ST_OK) {
        status = sized_struct_read(&given, sizeof(given), request, request->size, &err);
    }
    if (status == ST_OK) {
        status = prepare_infer(client, &given, &err);
    }
    return client_call_start(client, status, &err, given.timeout_ns, error);
}

sluice_client_status sluice_client_take_mip_infer(sluice_client *client, sluice_mip_answer *answer,
                                                  sluice_client_error *error) {
    return client_call_take_result(client, &infer, answer, &client->result.mip, sizeof(*answer),
                                   error);
}

sluice_client_status sluice_client_mip_infer(sluice_client *client,
                                             const sluice_mip_request *request,
                                             sluice_mip_answer *answer,
                                             sluice_client_error *error) {
    sluice_client_status status = client_call_check_out(answer, error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_client_start_mip_infer(client, request, error);
    }
    status = client_call_run(client, status, error);
    return status == SLUICE_CLIENT_OK ? sluice_client_take_mip_infer(client, answer, error)
                                      : status;
}
