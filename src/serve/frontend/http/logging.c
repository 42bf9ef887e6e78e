/* The logging extension over HTTP: GET returns the settings, POST changes them and returns the new
 * ones. */
#include "serve/frontend/http/routes.h"

#include "serve/frontend/log_settings.h"

enum status http_answer_logging(struct http_api *api, struct http_exchange *exchange,
                                const struct v2_path *path, struct buf *out, struct error *err) {
    (void)path;
    if (str_is(exchange->head.method, "POST")) {
        struct v2_log_settings wanted;
        enum status st =
            v2_log_decode(exchange->arena, exchange->body, &api->services.limits, &wanted, err);
        log_settings_apply(&wanted); /* settings before the invalid one are applied */
        if (st != ST_OK) {
            return st;
        }
    }
    struct v2_log_settings now = log_settings_get();
    v2_log_print(out, &now);
    return ST_OK;
}
