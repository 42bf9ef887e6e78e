/* The public functions of MIP's inference. */
#include "client/call.h"
#include "client/mip.h"

static enum status finish_infer(sluice_client *client, struct error *err) {
    struct mip_session *session = client_mip(client->client);
    enum status status = client_mip_check(session, client->room.n_bytes, err);
    if (status != ST_OK) {
        return status;
    }
    return client_mip_export(client->arena, mip_session_payload(session), &client->asked,
                             &client->result.mip, err);
}

static const struct call_kind infer = {"sluice_client_take_mip_infer", finish_infer};

static enum status prepare(sluice_client *client, const sluice_mip_request *request,
                           struct error *err) {
    uint32_t n_bytes = 0;
    const struct client_url *url = client_url(client->client);
    enum status status = client_url_expect(url, CLIENT_MIP, "an inference of items", err);
    if (status == ST_OK) {
        status = client_mip_import(client->arena, request, &client->asked, &n_bytes, err);
    }
    if (status != ST_OK) {
        return status;
    }
    client->room = request->buffer;
    return mip_session_begin_infer(client_mip(client->client), &client->asked, n_bytes,
                                   client->room.data, client->room.n_bytes, err);
}

sluice_client_status sluice_client_start_mip_infer(sluice_client *client,
                                                   const sluice_mip_request *request,
                                                   sluice_client_error *error) {
    struct error err = {0};
    sluice_mip_request given = {0};
    enum status status = call_begin(client, &infer, &err);
    if (status == ST_OK) {
        status = struct_take(&given, sizeof(given), request, request->size, &err);
    }
    if (status == ST_OK) {
        status = prepare(client, &given, &err);
    }
    return call_start(client, status, &err, given.timeout_ns, error);
}

sluice_client_status sluice_client_take_mip_infer(sluice_client *client, sluice_mip_answer *answer,
                                                  sluice_client_error *error) {
    return call_take(client, &infer, answer, &client->result.mip, sizeof(*answer), error);
}

sluice_client_status sluice_client_mip_infer(sluice_client *client,
                                             const sluice_mip_request *request,
                                             sluice_mip_answer *answer,
                                             sluice_client_error *error) {
    sluice_client_status status = call_check_out(answer, error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_client_start_mip_infer(client, request, error);
    }
    status = call_run(client, status, error);
    return status == SLUICE_CLIENT_OK ? sluice_client_take_mip_infer(client, answer, error)
                                      : status;
}
