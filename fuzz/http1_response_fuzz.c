/* HTTP/1.1 responses on one connection, the last possibly ended by its close: decoded whole,
 * byte by byte, and split as the first byte selects, they must have the same meaning. */
#include "codec/http1/response.h"
#include "core/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

struct connection {
    struct http1_response *response;
    struct buf said;
    size_t begin; /* offset in `said` of the current response */
    bool dead;
};

static void on_head(struct connection *c) {
    uint64_t n_bytes = 0;
    struct str type = {NULL, 0};
    int status = http1_response_status(c->response);
    size_t n = http1_response_find(c->response, "content-type", &type);
    bool known = http1_response_content_length(c->response, &n_bytes);
    check(status >= 200 && status <= 999);
    buf_printf(&c->said, "\n%d %zu:%.*s %d:%llu ", status, n, STR_ARG(type), known,
               (unsigned long long)n_bytes);
}

static void read_piece(struct connection *c, struct str piece) {
    enum http1_response_event event = HTTP1_RESPONSE_HEAD;
    while (!c->dead && event != HTTP1_RESPONSE_MORE) { /* an event may follow the last byte */
        struct str body, before = piece;
        struct error err = {0};
        enum status status = http1_response_step(c->response, &piece, &event, &body, &err);
        if (status != ST_OK) {
            check(err.text[0] != '\0');
            c->said.len = c->begin; /* how much is recorded before an error depends on the split */
            buf_printf(&c->said, "\n%s", status_name(status));
            c->dead = true;
        } else if (event == HTTP1_RESPONSE_HEAD) {
            on_head(c);
        } else if (event == HTTP1_RESPONSE_BODY) {
            check(body.len > 0 && body.ptr + body.len <= before.ptr + before.len);
            buf_add_str(&c->said, body);
        } else if (event == HTTP1_RESPONSE_DONE) {
            buf_printf(&c->said, "\ndone");
            c->dead = !http1_response_keeps_alive(c->response);
            c->begin = c->said.len;
            http1_response_begin(c->response, false);
        } else {
            check(piece.len == 0);
        }
    }
}

static struct str read_in_pieces(struct arena *texts, struct str text, size_t step, bool is_head) {
    struct connection c = {.response = http1_response_new()};
    check(c.response != NULL);
    buf_init(&c.said, texts, 256);
    http1_response_begin(c.response, is_head);
    for (size_t at = 0; at < text.len; at += step) {
        size_t n = text.len - at < step ? text.len - at : step;
        read_piece(&c, str_make(text.ptr + at, n));
    }
    if (!c.dead) {
        struct error err = {0};
        buf_printf(&c.said, "\nend %d", http1_response_eof(c.response, &err) == ST_OK);
    }
    http1_response_free(c.response);
    check(!c.said.failed);
    return buf_str(&c.said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    struct arena *texts = arena_new(NULL, 0);
    struct str text = str_make((const char *)data + 1, size - 1);
    bool is_head = (data[0] & 0x80) != 0;
    struct str whole = read_in_pieces(texts, text, size, is_head);
    check(str_eq(whole, read_in_pieces(texts, text, 1, is_head)));
    check(str_eq(whole, read_in_pieces(texts, text, (data[0] & 0x7fu) + 2, is_head)));
    arena_free(texts);
    return 0;
}
