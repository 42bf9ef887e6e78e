/* What the checks of codec/http1/web_access.h need of an exchange, and the response to a
 * preflight. */
#include "telemetry/admin/web_gate.h"

/* Fetch standard, 3.3.3. The fields that a page wants to send are allowed as they are: a model may
 * get them (--http-header-forward-pattern), and keys may be in any. */
static void reply_preflight(struct http_exchange *exchange, enum http_method_set methods,
                            struct str headers) {
    const struct http_field fields[] = {
        {STR("Access-Control-Allow-Methods"), str_of(http_methods_text(methods))},
        {STR("Access-Control-Max-Age"), STR("600")},
        {STR("Access-Control-Allow-Headers"), headers},
    };
    http_reply(exchange, &(struct http_reply){
                             .status = 200, .fields = fields, .n_fields = headers.len > 0 ? 3 : 2});
}

bool web_gate_check(const struct web_access *access, struct http_exchange *exchange,
                    enum web_resource resource, enum http_method_set methods) {
    struct str headers;
    struct error err;
    if (web_access_check(access, exchange->listener, resource, &exchange->head,
                         &exchange->allow_origin, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return false;
    }
    if (exchange->allow_origin.len > 0 && web_access_is_preflight(&exchange->head, &headers)) {
        reply_preflight(exchange, methods, headers);
        return false;
    }
    return true;
}
