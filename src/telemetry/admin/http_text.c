/* Text responses and method checks of the admin pages. */
#include "telemetry/admin/http_text.h"

void http_text_reply(struct http_exchange *exchange, int status, const char *type,
                     const struct buf *body) {
    if (body->failed) {
        struct error err;
        error_no_memory(&err, "the answer");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    struct piece piece = {body->data, body->len};
    http_reply(exchange, &(struct http_reply){.status = status,
                                              .content_type = type,
                                              .pieces = &piece,
                                              .n_pieces = body->len > 0});
}

static const struct {
    const char *allow, *words;
} METHODS[] = {
    [HTTP_READ] = {"GET, HEAD", "GET or HEAD"},
    [HTTP_POST] = {"POST", "POST"},
    [HTTP_READ_OR_POST] = {"GET, HEAD, POST", "GET, HEAD or POST"},
    [HTTP_READ_OR_DELETE] = {"GET, HEAD, DELETE", "GET, HEAD or DELETE"},
};

const char *http_methods_text(enum http_method_set methods) {
    return METHODS[methods].allow;
}

bool http_check_method(struct http_exchange *exchange, enum http_method_set methods) {
    struct str method = exchange->head.method;
    bool is_post = str_is(method, "POST"), is_delete = str_is(method, "DELETE"),
         is_read = str_is(method, "GET") || str_is(method, "HEAD");
    if ((is_post && (methods == HTTP_POST || methods == HTTP_READ_OR_POST)) ||
        (is_delete && methods == HTTP_READ_OR_DELETE) || (is_read && methods != HTTP_POST)) {
        return true;
    }
    struct error err;
    error_set(&err, ST_METHOD_NOT_ALLOWED, "expected %s for %.*s, got %.*s", METHODS[methods].words,
              STR_ARG(exchange->head.path), STR_ARG(method));
    struct http_field field = {STR("Allow"), str_of(METHODS[methods].allow)};
    http_reply_error(exchange, &err, &field, 1);
    return false;
}
