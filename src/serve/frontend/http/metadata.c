/* Health of the server and its models, and what the server tells about itself and them. */
#include "codec/kserve/metadata.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/http/routes.h"
#include "serve/repository/readiness.h"
#include "telemetry/admin/http_text.h"

void http_answer_live(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path) {
    (void)path;
    bool live = loop_health_is_live(api->services.loops);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_live_print(&body, live);
    http_json_reply(exchange, live ? 200 : 503, &body);
}

void http_answer_ready(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path) {
    (void)path;
    bool ready = server_is_ready(api->services.repository, api->services.loops, &api->draining);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_ready_print(&body, ready);
    http_json_reply(exchange, ready ? 200 : 503, &body);
}

void http_answer_model_ready(struct http_api *api, struct http_exchange *exchange,
                             const struct v2_path *path) {
    struct error err;
    struct model_version *version = NULL;
    enum status st =
        repository_find(api->services.repository, path->model, path->version, &version, &err);
    if (st != ST_OK && st != ST_NOT_READY) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    if (st == ST_OK) {
        st = model_version_is_ready(version) ? ST_OK : ST_NOT_READY;
        model_version_unref(version);
    }
    struct buf body;
    buf_init(&body, exchange->arena, 128);
    v2_model_ready_print(&body, path->model, st == ST_OK);
    http_json_reply(exchange, status_http(st), &body);
}

/* ---- documents ------------------------------------------------------------------------------- */

enum status http_encode_server(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path, struct buf *out, struct error *err) {
    (void)exchange, (void)path, (void)err;
    document_encode_server(api->server_name, api->server_version, out);
    return ST_OK;
}

enum status http_encode_model(struct http_api *api, struct http_exchange *exchange,
                              const struct v2_path *path, struct buf *out, struct error *err) {
    (void)exchange;
    return document_encode_metadata(api->services.repository, path->model, path->version, out, err);
}

enum status http_encode_config(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path, struct buf *out, struct error *err) {
    (void)exchange;
    return document_encode_config(api->services.repository, path->model, path->version, out, err);
}

enum status http_encode_statistics(struct http_api *api, struct http_exchange *exchange,
                                   const struct v2_path *path, struct buf *out, struct error *err) {
    (void)exchange;
    return document_encode_statistics(api->services.repository, path->model, path->version, out,
                                      err);
}

/* The index as it is known, without a scan of the directories. */
enum status http_encode_index(struct http_api *api, struct http_exchange *exchange,
                              const struct v2_path *path, struct buf *out, struct error *err) {
    (void)exchange, (void)path, (void)err;
    document_encode_index(api->services.repository, false, out);
    return ST_OK;
}

enum status http_print_load(struct http_api *api, struct http_exchange *exchange,
                            const struct v2_path *path, struct buf *out, struct error *err) {
    (void)exchange, (void)path, (void)err;
    load_report_print(api->services.repository, out);
    return ST_OK;
}
