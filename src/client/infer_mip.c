/* Public functions of sluice/client.h: inference over MIP. */
#include "client/call.h"
#include "client/mip_convert.h"
#include "client/sized_struct.h"

static enum status finish_infer(sluice_call *call, struct error *err) {
    struct mip_session *session = client_mip(call->lane->client);
    enum status status = client_mip_check(session, call->mip_buffer_bytes, err);
    if (status != ST_OK) {
        return status;
    }
    return client_mip_export(call->arena, mip_session_payload(session), &call->mip_request,
                             &call->result.mip, err);
}

static const struct client_call_kind infer = {.result = CLIENT_RESULT_MIP, .finish = finish_infer};

static enum status prepare_infer(sluice_call *call, const sluice_mip_request *request,
                                 struct error *err) {
    sluice_mip_request given = {0};
    enum status status =
        client_url_expect(&call->client->url, CLIENT_MIP, "an inference of items", err);
    if (status == ST_OK) {
        status = sized_struct_read(&given, sizeof(given), request, "sluice_mip_request", err);
    }
    if (status == ST_OK) {
        status = client_mip_import(call->arena, &given, &call->mip_request, &call->mip_bytes, err);
    }
    call->mip_buffer = given.buffer;
    call->mip_buffer_bytes = given.buffer_bytes;
    return status;
}

sluice_client_status sluice_client_start_mip_infer(sluice_client *client,
                                                   const sluice_mip_request *request,
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

sluice_client_status sluice_client_mip_infer(sluice_client *client,
                                             const sluice_mip_request *request,
                                             const sluice_call_options *options, sluice_call **call,
                                             sluice_client_error *error) {
    sluice_client_status status =
        sluice_client_start_mip_infer(client, request, options, call, error);
    return client_call_run(*call, status, error);
}
