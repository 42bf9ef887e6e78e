/* Parses requests with llhttp in its strict mode. llhttp splits a request and rejects bad
 * characters; head_check.c checks the rules for the head as a whole (one Host, one length, a form
 * of the target). The method is parsed here, and llhttp always gets GET, because llhttp has a fixed
 * list of methods and some of them change how it parses the rest.
 *
 * While a head is incomplete its bytes are collected in the arena, and its parts are offsets into
 * them, so that a head may arrive in any pieces. */
#include "codec/http1/request.h"

#include <assert.h>
#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/http1/head_check.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* ---- llhttp -------------------------------------------------------------------------------- */

struct span {
    uint32_t at;
    uint32_t len;
};

struct field_span {
    struct span name;
    struct span value;
};

struct request_parser {
    llhttp_t llhttp;
    struct arena *arena; /* for `fields` */
    const char *input;   /* the data being parsed */
    size_t input_offset; /* and its offset in the request */
    struct span target, version;
    struct field_span *fields;
    size_t n_fields;
    size_t fields_cap;
    bool in_value;      /* the name of the newest field is complete */
    bool in_body;       /* the head is complete; fields are trailers */
    bool in_chunk;      /* the size line of a chunk was read */
    bool ended;         /* the head is complete, or the chunked body */
    bool failed;        /* a callback reported an error in `err` */
    struct str body;    /* a piece of a chunk, for the caller */
    size_t extra_bytes; /* total of chunk extensions and trailers */
    struct error *err;  /* the caller's, during llhttp_execute */
};

/* Few, so that a small request takes one chunk of its arena, which does not count. */
enum { FIRST_FIELDS = 8 };

static struct request_parser *parser_of(llhttp_t *parser) {
    return parser->data;
}

/* Appends bytes to a span; they follow its bytes in the input. */
static void span_add(const struct request_parser *self, struct span *span, const char *at,
                     size_t len) {
    if (span->len == 0) {
        span->at = (uint32_t)(self->input_offset + (size_t)(at - self->input));
    }
    span->len += (uint32_t)len;
}

static int on_target(llhttp_t *parser, const char *at, size_t len) {
    struct request_parser *self = parser_of(parser);
    span_add(self, &self->target, at, len);
    return 0;
}

static int on_version(llhttp_t *parser, const char *at, size_t len) {
    struct request_parser *self = parser_of(parser);
    span_add(self, &self->version, at, len);
    return 0;
}

static int fail_parse(struct request_parser *self, enum status status, const char *text,
                      size_t limit) {
    error_set(self->err, status, "%s (at most %zu are accepted)", text, limit);
    self->failed = true;
    return -1;
}

/* Extensions and trailers are ignored, but their total size is limited. */
static int extra_add(struct request_parser *self, size_t n_bytes) {
    self->extra_bytes += n_bytes;
    if (self->extra_bytes > HTTP1_REQUEST_MAX_EXTRA_BYTES) {
        return fail_parse(self, ST_HEADER_TOO_LARGE,
                          "too many bytes of chunk extensions and trailers",
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

static int field_begin(struct request_parser *self) {
    if (self->n_fields == HTTP1_REQUEST_MAX_FIELDS) {
        return fail_parse(self, ST_HEADER_TOO_LARGE, "too many header fields",
                          HTTP1_REQUEST_MAX_FIELDS);
    }
    if (self->n_fields == self->fields_cap) {
        size_t cap = self->fields_cap == 0 ? FIRST_FIELDS : 2 * self->fields_cap;
        size_t size = sizeof(*self->fields);
        struct field_span *fields =
            arena_realloc(self->arena, self->fields, self->fields_cap * size, cap * size);
        if (!fields) {
            error_no_memory(self->err, "the header fields");
            self->failed = true;
            return -1;
        }
        self->fields = fields;
        self->fields_cap = cap;
    }
    self->fields[self->n_fields++] = (struct field_span){0};
    self->in_value = false;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t len) {
    struct request_parser *self = parser_of(parser);
    if (self->in_body) {
        return extra_add(self, len);
    }
    if ((self->n_fields == 0 || self->in_value) && field_begin(self) != 0) {
        return -1;
    }
    span_add(self, &self->fields[self->n_fields - 1].name, at, len);
    return 0;
}

static int on_field_complete(llhttp_t *parser) {
    struct request_parser *self = parser_of(parser);
    self->in_value = true;
    return self->in_body ? extra_add(self, 1) : 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t len) {
    struct request_parser *self = parser_of(parser);
    if (self->in_body) {
        return extra_add(self, len);
    }
    span_add(self, &self->fields[self->n_fields - 1].value, at, len);
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

/* At the end of the head, and of a chunked body. */
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

/* Parses `data`. Returns: HPE_OK when all was read, HPE_PAUSED at the end of the head or body or
 * with a piece of the body, else an error (with `failed`, `err` is filled); *n is the number of
 * bytes consumed. */
static llhttp_errno_t parser_feed(struct request_parser *self, struct str data, size_t *n,
                                  struct error *err) {
    llhttp_t *parser = &self->llhttp;
    llhttp_resume(parser);
    self->err = err;
    llhttp_errno_t error = llhttp_execute(parser, data.ptr, data.len);
    self->err = NULL;
    bool all = error == HPE_OK;
    *n = all ? data.len : (size_t)(llhttp_get_error_pos(parser) - data.ptr);
    return error;
}

/* ---- requests ------------------------------------------------------------------------------ */

enum { MAX_METHOD_BYTES = 32, MAX_EMPTY_LINES = 2 };

/* The part of the request that is read next. */
enum stage {
    STAGE_START,    /* empty lines, then the method */
    STAGE_START_LF, /* the LF of an empty line */
    STAGE_METHOD,   /* the rest of the method, up to the space after it */
    STAGE_HEAD,     /* from the target to the empty line that ends the head */
    STAGE_BODY,     /* chunks */
    STAGE_COMPLETE, /* nothing: the request is complete */
};

struct http1_request {
    enum stage stage;
    unsigned n_empty_lines;
    size_t max_header_size;
    struct buf bytes; /* of the head so far */
    struct span method;
    struct request_parser parser;
    struct http_head head;
};

/* ---- errors ---------------------------------------------------------------------------------- */

static struct str text_of(const struct http1_request *request, struct span span) {
    return span.len > 0 ? str_make(request->bytes.data + span.at, span.len) : str_make("", 0);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Is it a well-formed version other than 1.0 and 1.1? */
static bool version_is_unsupported(struct str version) {
    return version.len == 3 && is_digit(version.ptr[0]) && version.ptr[1] == '.' &&
           is_digit(version.ptr[2]) && !str_is(version, "1.0") && !str_is(version, "1.1");
}

static bool has_field(const struct http1_request *request, const char *name) {
    for (size_t i = 0; i < request->parser.n_fields; i++) {
        if (str_eq_nocase(text_of(request, request->parser.fields[i].name), str_of(name))) {
            return true;
        }
    }
    return false;
}

/* Maps an error of llhttp to a status. All bytes of the head are buffered. */
static enum status parser_error(struct http1_request *request, llhttp_errno_t error,
                                struct error *err) {
    struct str version = text_of(request, request->parser.version);
    if (str_is(text_of(request, request->method), "CONNECT")) { /* its target has a form of its
                                                                   own */
        return http1_connect_error(err);
    }
    if (error == HPE_INVALID_VERSION && version_is_unsupported(version)) {
        return error_set(err, ST_BAD_VERSION, "expected HTTP/1.1 or HTTP/1.0, got HTTP/%.*s",
                         STR_ARG(version));
    }
    if (error == HPE_INVALID_TRANSFER_ENCODING && !has_field(request, "Content-Length")) {
        return error_set(err, ST_UNSUPPORTED,
                         "expected Transfer-Encoding \"chunked\" and no other");
    }
    if (error == HPE_UNEXPECTED_CONTENT_LENGTH || error == HPE_INVALID_TRANSFER_ENCODING) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected one Content-Length, and none beside Transfer-Encoding");
    }
    const char *where = request->stage == STAGE_BODY ? "chunked body" : "request's head";
    return error_set(err, ST_BAD_REQUEST, "malformed HTTP in the %s: %s", where,
                     llhttp_get_error_reason(&request->parser.llhttp));
}

/* ---- the start of the request line ----------------------------------------------------------- */

/* Reads empty lines and the method, one byte at a time. Returns: ST_OK; the stage is HEAD once the
 * space after the method was read. */
static enum status start_read(struct http1_request *request, struct str data, size_t *n,
                              struct error *err) {
    while (*n < data.len && request->stage != STAGE_HEAD) {
        char c = data.ptr[*n];
        if (request->stage == STAGE_START_LF && c == '\n') {
            request->stage = STAGE_START;
        } else if (request->stage == STAGE_START && c == '\r' &&
                   request->n_empty_lines < MAX_EMPTY_LINES) {
            request->stage = STAGE_START_LF;
            request->n_empty_lines++;
        } else if (request->stage == STAGE_METHOD && c == ' ') {
            request->stage = STAGE_HEAD;
        } else if (request->stage != STAGE_START_LF && http1_is_token_char(c) &&
                   request->method.len < MAX_METHOD_BYTES) {
            request->stage = STAGE_METHOD;
            span_add(&request->parser, &request->method, data.ptr + *n, 1);
        } else {
            return error_set(err, ST_BAD_REQUEST,
                             "expected a request line \"METHOD TARGET HTTP/1.1\"");
        }
        ++*n;
    }
    return ST_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct http1_request *http1_request_new(struct arena *arena, size_t max_header_size) {
    struct http1_request *request = arena_calloc(arena, 1, sizeof(*request));
    if (!request) {
        return NULL;
    }
    request->max_header_size = max_header_size < UINT32_MAX ? max_header_size : UINT32_MAX;
    buf_init(&request->bytes, arena, 0);
    request->parser.arena = arena;
    llhttp_init(&request->parser.llhttp, HTTP_REQUEST, &SETTINGS);
    request->parser.llhttp.data = &request->parser;
    return request;
}

/* llhttp accepts several spaces, and other protocols with the same form of line (RFC 9112, 3: one
 * space each). The check of the version reports a line without one. */
static bool line_is_http(const struct http1_request *request) {
    static const struct str NAME = {" HTTP/", 6};
    struct span method = request->method, target = request->parser.target,
                version = request->parser.version;
    size_t end = target.at + target.len;
    return target.at == method.at + method.len + 1 &&
           (version.len == 0 || (version.at == end + NAME.len &&
                                 str_eq(str_make(request->bytes.data + end, NAME.len), NAME)));
}

/* Resolves the offsets to views and checks the head as a whole. */
static enum status head_finish(struct http1_request *request, struct error *err) {
    if (!line_is_http(request)) {
        return error_set(err, ST_BAD_REQUEST, "expected a request line \"METHOD TARGET HTTP/1.1\"");
    }
    struct http_field *fields =
        arena_alloc(request->bytes.arena, request->parser.n_fields * sizeof(*fields));
    if (!fields) {
        return error_no_memory(err, "the header fields");
    }
    for (size_t i = 0; i < request->parser.n_fields; i++) {
        fields[i] = (struct http_field){
            .name = text_of(request, request->parser.fields[i].name),
            .value = str_trim(text_of(request, request->parser.fields[i].value)),
        };
    }
    request->head = (struct http_head){
        .method = text_of(request, request->method),
        .target = text_of(request, request->parser.target),
        .fields = fields,
        .n_fields = request->parser.n_fields,
    };
    return http1_head_check(&request->head, text_of(request, request->parser.version), err);
}

/* Maps llhttp's result. Returns: ST_OK for a pause too; otherwise `err` has the reason. */
static enum status parser_status(struct http1_request *request, llhttp_errno_t error,
                                 struct error *err) {
    if (error == HPE_OK || error == HPE_PAUSED) {
        return ST_OK;
    }
    return request->parser.failed ? err->status : parser_error(request, error, err);
}

static enum status head_step(struct http1_request *request, struct str *data,
                             enum http1_request_event *event, struct error *err) {
    size_t capacity = request->max_header_size - request->bytes.len;
    struct str piece = str_make(data->ptr, data->len < capacity ? data->len : capacity);
    size_t n_start = 0, n = 0;
    llhttp_errno_t error = HPE_OK;
    request->parser.input = piece.ptr;
    request->parser.input_offset = request->bytes.len;
    bool began = request->stage == STAGE_HEAD;
    enum status st = start_read(request, piece, &n_start, err);
    if (st == ST_OK && request->stage == STAGE_HEAD && !began) {
        error = llhttp_execute(&request->parser.llhttp, "GET ", 4);
    }
    if (st == ST_OK && error == HPE_OK && n_start < piece.len) {
        error = parser_feed(&request->parser, str_make(piece.ptr + n_start, piece.len - n_start),
                            &n, err);
    }
    n += n_start;
    buf_add(&request->bytes, data->ptr, n);
    *data = str_make(data->ptr + n, data->len - n);
    if (request->bytes.failed) {
        return error_no_memory(err, "the head of the request");
    }
    st = st == ST_OK ? parser_status(request, error, err) : st;
    if (st == ST_OK && request->parser.ended) {
        request->parser.ended = false;
        st = head_finish(request, err);
        request->stage = request->head.chunked ? STAGE_BODY : STAGE_COMPLETE;
        request->parser.in_body = true;
        *event = HTTP1_REQUEST_HEAD;
    } else if (st == ST_OK && request->bytes.len == request->max_header_size) {
        st = error_set(err, ST_HEADER_TOO_LARGE,
                       "expected a request line and header fields of at most %zu bytes "
                       "(--max-header-size)",
                       request->max_header_size);
    }
    return st;
}

static enum status body_step(struct http1_request *request, struct str *data,
                             enum http1_request_event *event, struct str *body, struct error *err) {
    size_t n;
    request->parser.body = str_make(NULL, 0);
    enum status st = parser_status(request, parser_feed(&request->parser, *data, &n, err), err);
    *data = str_make(data->ptr + n, data->len - n);
    if (request->parser.body.len > 0) {
        *body = request->parser.body;
        *event = HTTP1_REQUEST_BODY;
    } else if (request->parser.ended) {
        request->stage = STAGE_COMPLETE;
        *event = HTTP1_REQUEST_DONE;
    }
    return st;
}

enum status http1_request_step(struct http1_request *request, struct str *data,
                               enum http1_request_event *event, struct str *body,
                               struct error *err) {
    assert(request->stage != STAGE_COMPLETE);
    *event = HTTP1_REQUEST_MORE;
    if (data->len == 0) {
        return ST_OK;
    }
    if (request->stage == STAGE_BODY) {
        return body_step(request, data, event, body, err);
    }
    return head_step(request, data, event, err);
}

const struct http_head *http1_request_head(const struct http1_request *request) {
    return &request->head;
}

uint64_t http1_request_chunk_left(const struct http1_request *request) {
    return request->parser.in_chunk ? request->parser.llhttp.content_length : 0;
}

bool http1_request_has_begun(const struct http1_request *request) {
    return request->stage > STAGE_START_LF;
}
