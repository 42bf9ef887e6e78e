/* HTTP/1.1 requests pipelined on one connection: decoded whole, byte by byte, and split at the
 * place that the first byte selects, they must have the same meaning. A body of known length is
 * skipped, as a server does. */
#include "codec/http1/request.h"
#include "codec/http1/web_access.h"
#include "core/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* A connection; the requests read are recorded as text. */
struct connection {
    struct arena *texts; /* of `said` */
    struct arena *arena; /* of the current request */
    struct http1_request *request;
    struct buf said;
    uint64_t body_left; /* left of a body of known length */
    bool dead;          /* rejected, or to be closed */
};

static void next_request(struct connection *c) {
    arena_free(c->arena);
    c->arena = arena_new(NULL, 0);
    c->request = http1_request_new(c->arena, 1024);
    check(c->request != NULL);
}

/* A response names an origin only where a setting allows it. */
static void check_web_access(const struct http_head *head) {
    static const char *const hosts[] = {"a", "*.b"}, *const origins[] = {"http://a",
                                                                         "control=s://b:1"};
    static const struct web_access settings[] = {
        {.machine = "m.n"}, {.hosts = hosts, .n_hosts = 2, .origins = origins, .n_origins = 2}};
    static const struct web_listener listeners[] = {{true, true, 80}, {true, false, 1}};
    for (size_t i = 0; i < 8; i++) {
        struct error err = {0};
        struct str origin, headers;
        enum web_resource resource = i & 1 ? WEB_CONTROL : WEB_SERVICE;
        enum status st = web_access_check(&settings[i >> 1 & 1], &listeners[i >> 2], resource, head,
                                          &origin, &err);
        check(st == ST_OK || (err.text[0] != '\0' && status_http(st) >= 400));
        check(origin.len == 0 || (head->names_site && i >> 1 & 1));
        check(!web_access_is_preflight(head, &headers) || head->names_site);
    }
}

static void on_head(struct connection *c) {
    const struct http_head *head = http1_request_head(c->request);
    check(head->method.len > 0 && head->target.len > 0);
    check(!head->chunked || (head->content_length == 0 && head->has_body));
    check(head->has_body == (head->chunked || head->content_length > 0));
    check_web_access(head);
    buf_printf(&c->said, "\n%.*s %.*s?%.*s %d %d %d %llu", STR_ARG(head->method),
               STR_ARG(head->path), STR_ARG(head->query), head->http10, head->keep_alive,
               (int)head->expect, (unsigned long long)head->content_length);
    for (size_t i = 0; i < head->n_fields; i++) {
        struct str value;
        check(http1_request_has_begun(c->request));
        check(!memchr(head->fields[i].value.ptr, '\n', head->fields[i].value.len));
        buf_printf(&c->said, " %.*s=%.*s", STR_ARG(head->fields[i].name),
                   STR_ARG(head->fields[i].value));
        (void)http_head_find(head, STR("host"), &value);
    }
    c->dead |= !head->keep_alive && !head->has_body;
    c->body_left = head->content_length;
    if (!head->has_body) {
        next_request(c);
    }
}

/* Takes the available bytes of a body of known length. */
static struct str take_body(struct connection *c, struct str piece) {
    size_t n = c->body_left < piece.len ? (size_t)c->body_left : piece.len;
    buf_add(&c->said, piece.ptr, n);
    c->body_left -= n;
    if (c->body_left == 0) {
        c->dead |= !http1_request_head(c->request)->keep_alive;
        next_request(c);
    }
    return str_make(piece.ptr + n, piece.len - n);
}

static void read_piece(struct connection *c, struct str piece) {
    while (piece.len > 0 && !c->dead) {
        if (c->body_left > 0) {
            piece = take_body(c, piece);
            continue;
        }
        enum http1_request_event event;
        struct str body, before = piece;
        struct error err = {0};
        enum status status = http1_request_step(c->request, &piece, &event, &body, &err);
        if (status != ST_OK) {
            check(err.text[0] != '\0' && status_http(status) >= 400);
            buf_printf(&c->said, "\n%s", status_name(status));
            c->dead = true;
        } else if (event == HTTP1_REQUEST_HEAD) {
            on_head(c);
        } else if (event == HTTP1_REQUEST_BODY) {
            check(body.len > 0 && body.ptr >= before.ptr &&
                  body.ptr + body.len <= before.ptr + before.len);
            buf_add_str(&c->said, body);
        } else if (event == HTTP1_REQUEST_DONE) {
            c->dead |= !http1_request_head(c->request)->keep_alive;
            next_request(c);
        } else {
            check(piece.len == 0);
        }
    }
}

/* Returns: the recorded text, in `texts`. */
static struct str read_in_pieces(struct arena *texts, struct str text, size_t step) {
    struct connection c = {.texts = texts};
    buf_init(&c.said, texts, 256);
    next_request(&c);
    for (size_t at = 0; at < text.len; at += step) {
        size_t n = text.len - at < step ? text.len - at : step;
        read_piece(&c, str_make(text.ptr + at, n));
    }
    arena_free(c.arena);
    check(!c.said.failed);
    return buf_str(&c.said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    struct arena *texts = arena_new(NULL, 0);
    struct str text = str_make((const char *)data + 1, size - 1);
    struct str whole = read_in_pieces(texts, text, size);
    check(str_eq(whole, read_in_pieces(texts, text, 1)));
    check(str_eq(whole, read_in_pieces(texts, text, (size_t)data[0] + 2)));
    arena_free(texts);
    return 0;
}
