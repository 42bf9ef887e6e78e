/* Parses HTTP/1.1 responses with llhttp. Its callbacks record events and pause the parser after
 * each piece of a body, so that at most one event of a kind is pending; each step returns one.
 * Names and values are stored one after the other in a block of fixed size. */
#include "codec/http1/response.h"

#include <llhttp.h>
#include <stdlib.h>
#include <string.h>

enum http1_state {
    STATE_HEAD,    /* status line and fields, of an interim or the final answer */
    STATE_INTERIM, /* a 1xx head is complete; the empty rest of that response is not */
    STATE_BODY,    /* the final head is complete */
    STATE_DONE,    /* the final response is complete; http1_response_begin is next */
    STATE_FAILED,  /* nothing more can be parsed */
};

enum { MAX_INTERIM = 16 };

struct field {
    uint32_t name, n_name, value, n_value; /* offsets in `text` */
};

struct http1_response {
    llhttp_t parser;
    enum http1_state state;
    bool head_request;
    bool begun;
    bool keeps_alive;
    bool has_length;
    uint64_t length;
    unsigned n_interim;
    bool head_pending; /* recorded by a callback, not yet returned by step */
    bool done_pending;
    struct str piece;
    struct error *err; /* of the current step */
    size_t n_extra;    /* bytes of chunk extensions and trailers since the last byte of the body */
    size_t n_text;
    size_t n_fields;
    struct field fields[HTTP1_RESPONSE_MAX_FIELDS];
    char text[HTTP1_RESPONSE_MAX_HEAD_BYTES];
};

static struct http1_response *self_of(llhttp_t *parser) {
    return parser->data;
}

/* The only function that changes the state. */
static void set_state(struct http1_response *self, enum http1_state state) {
    self->state = state;
}

static int fail_response(struct http1_response *self, const char *why) {
    error_set(self->err, ST_BAD_ANSWER, "the server's answer is not HTTP/1.1: %s", why);
    set_state(self, STATE_FAILED);
    return HPE_USER;
}

static int add_text(struct http1_response *self, const char *at, size_t n) {
    if (n > sizeof(self->text) - self->n_text) {
        return fail_response(self, "its head is over 32 KiB");
    }
    memcpy(self->text + self->n_text, at, n);
    self->n_text += n;
    return 0;
}

/* They are ignored, but without a limit an answer could consist of them for ever. */
static int add_extra(struct http1_response *self, size_t n) {
    self->n_extra += n;
    return self->n_extra > HTTP1_RESPONSE_MAX_HEAD_BYTES
               ? fail_response(self, "its chunk extensions or trailers are over 32 KiB")
               : 0;
}

static int on_extension(llhttp_t *parser, const char *at, size_t n) {
    (void)at;
    return add_extra(self_of(parser), n);
}

static int on_name(llhttp_t *parser, const char *at, size_t n) {
    struct http1_response *self = self_of(parser);
    if (self->state != STATE_HEAD) { /* a trailer */
        return add_extra(self, n);
    }
    if (self->n_fields == HTTP1_RESPONSE_MAX_FIELDS) {
        return fail_response(self, "its head has over 128 fields");
    }
    struct field *field = &self->fields[self->n_fields];
    if (field->n_name == 0) {
        field->name = (uint32_t)self->n_text;
    }
    field->n_name += (uint32_t)n;
    return add_text(self, at, n);
}

static int on_value(llhttp_t *parser, const char *at, size_t n) {
    struct http1_response *self = self_of(parser);
    if (self->state != STATE_HEAD) {
        return add_extra(self, n);
    }
    struct field *field = &self->fields[self->n_fields];
    if (field->n_value == 0) {
        field->value = (uint32_t)self->n_text;
    }
    field->n_value += (uint32_t)n;
    return add_text(self, at, n);
}

static int on_value_complete(llhttp_t *parser) {
    struct http1_response *self = self_of(parser);
    if (self->state != STATE_HEAD) {
        return 0;
    }
    if (++self->n_fields < HTTP1_RESPONSE_MAX_FIELDS) {
        self->fields[self->n_fields] = (struct field){0};
    }
    return 0;
}

static void clear_fields(struct http1_response *self) {
    self->n_text = 0;
    self->n_fields = 0;
    self->fields[0] = (struct field){0};
}

static int on_head(llhttp_t *parser) {
    struct http1_response *self = self_of(parser);
    unsigned code = parser->status_code;
    if (parser->http_major != 1) {
        return fail_response(self, "its version is not 1.1 or 1.0");
    }
    if (code < 100) {
        return fail_response(self, "its status is below 100");
    }
    if (code == 101) {
        return fail_response(self, "it switches to a protocol that was not requested (101)");
    }
    if (code < 200) {
        if (++self->n_interim > MAX_INTERIM) {
            return fail_response(self, "too many interim answers (1xx)");
        }
        set_state(self, STATE_INTERIM);
        return 0;
    }
    self->has_length = (parser->flags & F_CONTENT_LENGTH) != 0;
    self->length = parser->content_length;
    if ((parser->flags & F_TRANSFER_ENCODING) && !(parser->flags & F_CHUNKED)) {
        return fail_response(self, "its Transfer-Encoding is not chunked");
    }
    set_state(self, STATE_BODY);
    self->head_pending = true;
    /* RFC 9110 section 6.4.1: these have no body, whatever the fields are. */
    return self->head_request || code == 204 || code == 304 ? 1 : 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t n) {
    struct http1_response *self = self_of(parser);
    if (n == 0) {
        return 0;
    }
    if (self->state != STATE_BODY) {
        return fail_response(self, "an interim answer (1xx) has a body");
    }
    self->piece = str_make(at, n);
    self->n_extra = 0;
    return HPE_PAUSED;
}

static int on_complete(llhttp_t *parser) {
    struct http1_response *self = self_of(parser);
    if (self->state == STATE_INTERIM) {
        clear_fields(self);
        set_state(self, STATE_HEAD);
        return 0;
    }
    self->keeps_alive = llhttp_should_keep_alive(parser) != 0;
    self->done_pending = true;
    set_state(self, STATE_DONE);
    return HPE_PAUSED;
}

static const llhttp_settings_t callbacks = {
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_value = on_extension,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

struct http1_response *http1_response_new(void) {
    struct http1_response *self = malloc(sizeof(*self));
    if (self) {
        http1_response_begin(self, false);
    }
    return self;
}

void http1_response_free(struct http1_response *response) {
    free(response);
}

void http1_response_begin(struct http1_response *response, bool head_request) {
    memset(response, 0, offsetof(struct http1_response, fields));
    response->head_request = head_request;
    clear_fields(response);
    llhttp_init(&response->parser, HTTP_RESPONSE, &callbacks);
    response->parser.data = response;
    set_state(response, STATE_HEAD);
}

/* Runs the parser until it pauses. */
static enum status run_parser(struct http1_response *self, struct str *data, struct error *err) {
    llhttp_errno_t result = llhttp_get_errno(&self->parser);
    const char *from = data->ptr ? data->ptr : "";
    self->err = err;
    if (result == HPE_PAUSED) {
        llhttp_resume(&self->parser);
    }
    self->begun = self->begun || data->len > 0;
    result = llhttp_execute(&self->parser, from, data->len);
    self->err = NULL;
    if (result == HPE_OK) {
        *data = str_make(from + data->len, 0);
        return ST_OK;
    }
    if (result == HPE_PAUSED) {
        size_t n = (size_t)(llhttp_get_error_pos(&self->parser) - from);
        *data = str_make(from + n, data->len - n);
        return ST_OK;
    }
    if (self->state == STATE_FAILED) { /* a callback reported the error */
        return ST_BAD_ANSWER;
    }
    set_state(self, STATE_FAILED);
    return error_set(err, ST_BAD_ANSWER, "the server's answer is not HTTP/1.1: %s",
                     llhttp_get_error_reason(&self->parser));
}

/* Returns the pending events, in the order of the message. */
static enum http1_response_event next_event(struct http1_response *self, struct str *body) {
    if (self->head_pending) {
        self->head_pending = false;
        return HTTP1_RESPONSE_HEAD;
    }
    if (self->piece.len > 0) {
        *body = self->piece;
        self->piece = str_make(NULL, 0);
        return HTTP1_RESPONSE_BODY;
    }
    if (self->done_pending) {
        self->done_pending = false;
        return HTTP1_RESPONSE_DONE;
    }
    return HTTP1_RESPONSE_MORE;
}

enum status http1_response_step(struct http1_response *response, struct str *data,
                                enum http1_response_event *event, struct str *body,
                                struct error *err) {
    *event = next_event(response, body);
    if (*event != HTTP1_RESPONSE_MORE) {
        return ST_OK;
    }
    if (response->state == STATE_FAILED) {
        return error_set(err, ST_BAD_ANSWER, "no answer can be read after a malformed one");
    }
    if (response->state == STATE_DONE) {
        return error_set(err, ST_BAD_ANSWER, "unexpected bytes after the server's answer");
    }
    enum status status = run_parser(response, data, err);
    if (status == ST_OK) {
        *event = next_event(response, body);
    }
    return status;
}

enum status http1_response_eof(struct http1_response *response, struct error *err) {
    if (response->state == STATE_DONE) {
        return ST_OK;
    }
    if (response->state == STATE_BODY) {
        if (llhttp_get_errno(&response->parser) == HPE_PAUSED) {
            llhttp_resume(&response->parser);
        }
        llhttp_finish(&response->parser); /* calls on_complete where the response may end here */
    }
    if (response->state == STATE_DONE) {
        response->done_pending = false;
        response->keeps_alive = false;
        return ST_OK;
    }
    set_state(response, STATE_FAILED);
    return error_set(err, ST_BAD_ANSWER, "the server closed the connection %s",
                     response->begun ? "in the middle of its answer" : "without an answer");
}

int http1_response_status(const struct http1_response *response) {
    return response->parser.status_code;
}

size_t http1_response_n_fields(const struct http1_response *response) {
    return response->n_fields;
}

void http1_response_field(const struct http1_response *response, size_t index, struct str *name,
                          struct str *value) {
    const struct field *field = &response->fields[index];
    *name = str_make(response->text + field->name, field->n_name);
    *value = str_trim(str_make(response->text + field->value, field->n_value));
}

size_t http1_response_find(const struct http1_response *response, const char *name,
                           struct str *value) {
    size_t n = 0;
    for (size_t i = 0; i < response->n_fields; i++) {
        const struct field *field = &response->fields[i];
        struct str is = str_make(response->text + field->name, field->n_name);
        if (!str_eq_nocase(is, str_of(name))) {
            continue;
        }
        if (n++ == 0) {
            *value = str_trim(str_make(response->text + field->value, field->n_value));
        }
    }
    return n;
}

bool http1_response_content_length(const struct http1_response *response, uint64_t *n_bytes) {
    *n_bytes = response->length;
    return response->has_length;
}

bool http1_response_keeps_alive(const struct http1_response *response) {
    return response->keeps_alive;
}
