/* Whole calls of KServe v2, for who may wait: the command line. */
#include "client/v2.h"

static enum status run_exchange(struct client *client, const struct client_request *request,
                                uint64_t timeout_ns, struct error *err) {
    struct http_message message = {request->pieces, request->n_pieces};
    return client_exchange(client, message, timeout_ns, err);
}

enum status client_infer(struct client *client, struct arena *arena,
                         const struct client_infer *infer, struct v2_client_response *out,
                         struct error *err) {
    struct client_request request;
    enum status status = client_infer_encode(arena, client_url(client), infer, &request, err);
    if (status == ST_OK) {
        status = run_exchange(client, &request, infer->timeout_ns, err);
    }
    return status == ST_OK ? client_infer_decode(arena, client_http(client), out, err) : status;
}

enum status client_model_metadata(struct client *client, struct arena *arena, struct str model,
                                  struct str version, struct model_spec *out, struct error *err) {
    struct client_request request;
    enum status status =
        client_query_encode(arena, client_url(client), CLIENT_MODEL, model, version, &request, err);
    if (status == ST_OK) {
        status = run_exchange(client, &request, 0, err);
    }
    return status == ST_OK ? client_model_decode(arena, client_http(client), out, err) : status;
}
