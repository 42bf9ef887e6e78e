/* llhttp's callbacks. Bad characters and bad framing it refuses by itself, in its strict mode; what
 * it would take without end is bounded here. */
#include "codec/http1/request_parser.h"

#include "codec/http1/request.h"

enum { FIRST_FIELDS = 16 };

static struct http1_request_parser *parser_of(llhttp_t *parser) {
    return parser->data;
}

void http1_span_add(const struct http1_request_parser *self, struct http1_span *span,
                    const char *at, size_t len) {
    if (span->len == 0) {
        span->at = (uint32_t)(self->input_offset + (size_t)(at - self->input));
    }
    span->len += (uint32_t)len;
}

static int on_target(llhttp_t *parser, const char *at, size_t len) {
    struct http1_request_parser *self = parser_of(parser);
    http1_span_add(self, &self->target, at, len);
    return 0;
}

static int on_version(llhttp_t *parser, const char *at, size_t len) {
    struct http1_request_parser *self = parser_of(parser);
    http1_span_add(self, &self->version, at, len);
    return 0;
}

static int fail(struct http1_request_parser *self, enum status status, const char *text,
                size_t limit) {
    error_set(self->err, status, "%s (at most %zu are taken)", text, limit);
    self->failed = true;
    return -1;
}

/* Extensions and trailers are passed over, but not without end. */
static int extra_add(struct http1_request_parser *self, size_t n_bytes) {
    self->extra_bytes += n_bytes;
    if (self->extra_bytes > HTTP1_REQUEST_MAX_EXTRA_BYTES) {
        return fail(self, ST_HEADER_TOO_LARGE, "too many bytes of chunk extensions and trailers",
                    HTTP1_REQUEST_MAX_EXTRA_BYTES);
    }
    return 0;
}

static int on_extension(llhttp_t *parser, const char *at, size_t len) {
    (void)at;
    return extra_add(parser_of(parser), len);
}

static int on_extension_complete(llhttp_t *parser) {
    return extra_add(parser_of(parser), 1);
}

static int field_begin(struct http1_request_parser *self) {
    if (self->n_fields == HTTP1_REQUEST_MAX_FIELDS) {
        return fail(self, ST_HEADER_TOO_LARGE, "too many header fields", HTTP1_REQUEST_MAX_FIELDS);
    }
    if (self->n_fields == self->fields_cap) {
        size_t cap = self->fields_cap == 0 ? FIRST_FIELDS : 2 * self->fields_cap;
        size_t size = sizeof(*self->fields);
        struct http1_field_span *fields =
            arena_realloc(self->arena, self->fields, self->fields_cap * size, cap * size);
        if (!fields) {
            error_set(self->err, ST_NO_MEMORY, "no memory for the header fields");
            self->failed = true;
            return -1;
        }
        self->fields = fields;
        self->fields_cap = cap;
    }
    self->fields[self->n_fields++] = (struct http1_field_span){0};
    self->in_value = false;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t len) {
    struct http1_request_parser *self = parser_of(parser);
    if (self->in_body) {
        return extra_add(self, len);
    }
    if ((self->n_fields == 0 || self->in_value) && field_begin(self) != 0) {
        return -1;
    }
    http1_span_add(self, &self->fields[self->n_fields - 1].name, at, len);
    return 0;
}

static int on_field_complete(llhttp_t *parser) {
    struct http1_request_parser *self = parser_of(parser);
    self->in_value = true;
    return self->in_body ? extra_add(self, 1) : 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t len) {
    struct http1_request_parser *self = parser_of(parser);
    if (self->in_body) {
        return extra_add(self, len);
    }
    http1_span_add(self, &self->fields[self->n_fields - 1].value, at, len);
    return 0;
}

static int on_chunk_begin(llhttp_t *parser) {
    parser_of(parser)->in_chunk = true;
    return 0;
}

static int on_chunk_end(llhttp_t *parser) {
    parser_of(parser)->in_chunk = false;
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len) {
    parser_of(parser)->body = str_make(at, len);
    return HPE_PAUSED;
}

/* The end of the head, and that of a chunked body. */
static int on_end(llhttp_t *parser) {
    parser_of(parser)->ended = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t SETTINGS = {
    .on_url = on_target,
    .on_version = on_version,
    .on_header_field = on_field,
    .on_header_field_complete = on_field_complete,
    .on_header_value = on_value,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_name_complete = on_extension_complete,
    .on_chunk_extension_value = on_extension,
    .on_chunk_extension_value_complete = on_extension_complete,
    .on_headers_complete = on_end,
    .on_chunk_header = on_chunk_begin,
    .on_chunk_complete = on_chunk_end,
    .on_body = on_body,
    .on_message_complete = on_end,
};

void http1_request_parser_init(struct http1_request_parser *self, struct arena *arena) {
    *self = (struct http1_request_parser){.arena = arena};
    llhttp_init(&self->llhttp, HTTP_REQUEST, &SETTINGS);
    self->llhttp.data = self;
}

llhttp_errno_t http1_request_parser_feed(struct http1_request_parser *self, struct str data,
                                         size_t *n, struct error *err) {
    llhttp_t *parser = &self->llhttp;
    llhttp_resume(parser);
    self->err = err;
    llhttp_errno_t error = llhttp_execute(parser, data.ptr, data.len);
    self->err = NULL;
    bool all = error == HPE_OK;
    *n = all ? data.len : (size_t)(llhttp_get_error_pos(parser) - data.ptr);
    return error;
}
