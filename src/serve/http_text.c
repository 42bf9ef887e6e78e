/* Small answers. */
#include "serve/http_text.h"

void http_text_reply(struct http_exchange *exchange, int status, const char *type,
                     const struct buf *body) {
    if (body->failed) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory for the answer");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    struct piece piece = {body->data, body->len};
    http_reply(exchange, &(struct http_reply){.status = status,
                                              .content_type = type,
                                              .pieces = &piece,
                                              .n_pieces = body->len > 0});
}

bool http_text_method_fits(struct http_exchange *exchange, bool post) {
    struct str method = exchange->head.method;
    if (post ? str_is(method, "POST") : str_is(method, "GET") || str_is(method, "HEAD")) {
        return true;
    }
    const char *allow = post ? "POST" : "GET, HEAD";
    struct error err;
    error_set(&err, ST_METHOD_NOT_ALLOWED, "expected %s for %.*s, got %.*s",
              post ? "POST" : "GET or HEAD", STR_ARG(exchange->head.path), STR_ARG(method));
    struct http_field field = {STR("Allow"), str_of(allow)};
    http_reply_error(exchange, &err, &field, 1);
    return false;
}
