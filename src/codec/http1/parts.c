/* llhttp's callbacks. Bad characters and bad framing it refuses by itself, in its strict mode; what
 * it would take without end is bounded here. */
#include "codec/http1/parts.h"

#include "codec/http1/request.h"

enum { FIRST_FIELDS = 16 };

static struct http1_parts *parts_of(llhttp_t *parser) {
    return parser->data;
}

void http1_span_add(const struct http1_parts *parts, struct http1_span *span, const char *at,
                    size_t len) {
    if (span->len == 0) {
        span->at = (uint32_t)(parts->fed_at + (size_t)(at - parts->fed));
    }
    span->len += (uint32_t)len;
}

static int on_target(llhttp_t *parser, const char *at, size_t len) {
    struct http1_parts *parts = parts_of(parser);
    http1_span_add(parts, &parts->target, at, len);
    return 0;
}

static int on_version(llhttp_t *parser, const char *at, size_t len) {
    struct http1_parts *parts = parts_of(parser);
    http1_span_add(parts, &parts->version, at, len);
    return 0;
}

static int fail(struct http1_parts *parts, enum status status, const char *text, size_t limit) {
    error_set(parts->err, status, "%s (at most %zu are taken)", text, limit);
    parts->failed = true;
    return -1;
}

/* Extensions and trailers are passed over, but not without end. */
static int extra_add(struct http1_parts *parts, size_t n_bytes) {
    parts->extra_bytes += n_bytes;
    if (parts->extra_bytes > HTTP1_REQUEST_MAX_EXTRA_BYTES) {
        return fail(parts, ST_HEADER_TOO_LARGE, "too many bytes of chunk extensions and trailers",
                    HTTP1_REQUEST_MAX_EXTRA_BYTES);
    }
    return 0;
}

static int on_extension(llhttp_t *parser, const char *at, size_t len) {
    (void)at;
    return extra_add(parts_of(parser), len);
}

static int on_extension_complete(llhttp_t *parser) {
    return extra_add(parts_of(parser), 1);
}

static int field_begin(struct http1_parts *parts) {
    if (parts->n_fields == HTTP1_REQUEST_MAX_FIELDS) {
        return fail(parts, ST_HEADER_TOO_LARGE, "too many header fields", HTTP1_REQUEST_MAX_FIELDS);
    }
    if (parts->n_fields == parts->fields_cap) {
        size_t cap = parts->fields_cap == 0 ? FIRST_FIELDS : 2 * parts->fields_cap;
        size_t size = sizeof(*parts->fields);
        struct http1_field_span *fields =
            arena_realloc(parts->arena, parts->fields, parts->fields_cap * size, cap * size);
        if (!fields) {
            error_set(parts->err, ST_NO_MEMORY, "no memory for the header fields");
            parts->failed = true;
            return -1;
        }
        parts->fields = fields;
        parts->fields_cap = cap;
    }
    parts->fields[parts->n_fields++] = (struct http1_field_span){0};
    parts->in_value = false;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t len) {
    struct http1_parts *parts = parts_of(parser);
    if (parts->in_body) {
        return extra_add(parts, len);
    }
    if ((parts->n_fields == 0 || parts->in_value) && field_begin(parts) != 0) {
        return -1;
    }
    http1_span_add(parts, &parts->fields[parts->n_fields - 1].name, at, len);
    return 0;
}

static int on_field_complete(llhttp_t *parser) {
    struct http1_parts *parts = parts_of(parser);
    parts->in_value = true;
    return parts->in_body ? extra_add(parts, 1) : 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t len) {
    struct http1_parts *parts = parts_of(parser);
    if (parts->in_body) {
        return extra_add(parts, len);
    }
    http1_span_add(parts, &parts->fields[parts->n_fields - 1].value, at, len);
    return 0;
}

static int on_chunk_begin(llhttp_t *parser) {
    parts_of(parser)->in_chunk = true;
    return 0;
}

static int on_chunk_end(llhttp_t *parser) {
    parts_of(parser)->in_chunk = false;
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len) {
    parts_of(parser)->body = str_make(at, len);
    return HPE_PAUSED;
}

/* The end of the head, and that of a chunked body. */
static int on_end(llhttp_t *parser) {
    parts_of(parser)->ended = true;
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

void http1_parts_init(struct http1_parts *parts, struct arena *arena) {
    *parts = (struct http1_parts){.arena = arena};
    llhttp_init(&parts->parser, HTTP_REQUEST, &SETTINGS);
    parts->parser.data = parts;
}

llhttp_errno_t http1_parts_feed(struct http1_parts *parts, struct str data, size_t *n,
                                struct error *err) {
    llhttp_t *parser = &parts->parser;
    llhttp_resume(parser);
    parts->err = err;
    llhttp_errno_t error = llhttp_execute(parser, data.ptr, data.len);
    parts->err = NULL;
    bool all = error == HPE_OK;
    *n = all ? data.len : (size_t)(llhttp_get_error_pos(parser) - data.ptr);
    return error;
}
