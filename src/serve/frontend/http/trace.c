/* The trace extension over HTTP: GET returns the settings, POST changes them and returns the new
 * ones. */
#include "serve/frontend/http/routes.h"

#include "serve/trace/tracer.h"

enum status http_answer_trace(struct http_api *api, struct http_exchange *exchange,
                              const struct v2_path *path, struct buf *out, struct error *err) {
    struct str model = path->model.ptr ? path->model : STR("");
    enum status st = trace_model_check(api->services.repository, model, err);
    if (st == ST_OK && str_is(exchange->head.method, "POST")) {
        struct v2_trace_update wanted;
        st = v2_trace_decode(exchange->arena, exchange->body, &api->services.limits, &wanted, err);
        st = st == ST_OK ? tracer_change_settings(api->services.tracer, model, &wanted, err) : st;
    }
    if (st == ST_OK) {
        struct v2_trace_settings now = tracer_get_settings(api->services.tracer, model);
        v2_trace_print(out, &now);
    }
    return st;
}
