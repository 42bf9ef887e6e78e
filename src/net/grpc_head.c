/* The head of a call and of its answer: fields gathered within a limit, read, and written. */
#include <stdlib.h>

#include "loop/clock.h"
#include "net/grpc_session.h"

enum {
    FIELD_OVERHEAD = 32, /* RFC 9113, 10.5.1: what a field counts for besides its bytes */
    FAR_OVER = 8,        /* times the limit: not only refused, but the connection ended */
    FIRST_FIELDS = 16,
    MOST_FIELDS = 256,
    STATUS_BYTES = 12,
    LAST_STATUS = 16,
};

/* ---- in -------------------------------------------------------------------------------------- */

static bool keep(struct grpc_stream *stream, struct str name, struct str value) {
    struct arena *arena = stream->call.arena;
    if (stream->n_fields == stream->cap_fields) {
        size_t cap = stream->cap_fields ? stream->cap_fields * 2 : FIRST_FIELDS;
        struct grpc_field *fields = arena_realloc(
            arena, stream->fields, stream->cap_fields * sizeof *fields, cap * sizeof *fields);
        if (!fields) {
            return false;
        }
        stream->fields = fields;
        stream->cap_fields = cap;
    }
    struct grpc_field field = {arena_dup(arena, name), arena_dup(arena, value)};
    stream->fields[stream->n_fields] = field;
    stream->n_fields += field.name.ptr && field.value.ptr;
    return field.name.ptr && field.value.ptr;
}

static bool keep_pseudo(struct grpc_stream *stream, struct str name, struct str value) {
    struct str *where = NULL;
    if (str_is(name, ":path")) {
        where = &stream->path;
    } else if (str_is(name, ":method")) {
        where = &stream->http_method;
    } else if (str_is(name, ":authority")) {
        where = &stream->call.authority;
    }
    if (where) {
        *where = arena_dup(stream->call.arena, value);
    }
    return !where || where->ptr;
}

bool grpc_head_add(struct grpc_stream *stream, struct str name, struct str value) {
    size_t limit = stream->core->options->limits.max_header_bytes;
    stream->head_bytes += name.len + value.len + FIELD_OVERHEAD;
    if (stream->head_bytes > limit || stream->n_fields == MOST_FIELDS) {
        stream->head_over = true;
        return stream->head_bytes <= limit * FAR_OVER;
    }
    bool kept = name.len > 0 && name.ptr[0] == ':' ? keep_pseudo(stream, name, value)
                                                   : keep(stream, name, value);
    stream->head_over = stream->head_over || !kept;
    return true;
}

static const struct grpc_method *find_method(const struct grpc_server_options *options,
                                             struct str path) {
    for (size_t i = 0; i < options->n_methods; i++) {
        if (str_is(path, options->methods[i].path)) {
            return &options->methods[i];
        }
    }
    return NULL;
}

/* gRPC over HTTP2, "Requests": what is no gRPC call is told so in HTTP's own words. */
static enum status check_http(const struct grpc_stream *stream, int *http, struct error *err) {
    if (!str_is(stream->http_method, "POST")) {
        *http = 405;
        return error_set(err, ST_METHOD_NOT_ALLOWED, "expected POST, got %.*s",
                         STR_ARG(stream->http_method));
    }
    if (!grpc_content_type_ok(grpc_find(&stream->call, "content-type", NULL))) {
        *http = 415;
        return error_set(err, ST_UNKNOWN_ENCODING, "expected the content type application/grpc");
    }
    return ST_OK;
}

static enum status read_codings(struct grpc_stream *stream, struct error *err) {
    size_t n;
    struct str name = grpc_find(&stream->call, "grpc-encoding", &n);
    if (n > 0 && !grpc_coding_parse(name, &stream->coding)) {
        grpc_set_field(&stream->call, STR("grpc-accept-encoding"), STR("identity,deflate,gzip"));
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected grpc-encoding identity, gzip or deflate, got \"%.*s\"",
                         STR_ARG(name));
    }
    if (stream->core->options->limits.compression_level > 0) {
        stream->answer_coding =
            grpc_coding_choose(grpc_find(&stream->call, "grpc-accept-encoding", NULL));
    }
    return ST_OK;
}

static enum status read_timeout(struct grpc_stream *stream, struct error *err) {
    size_t n;
    uint64_t ns;
    struct str text = grpc_find(&stream->call, "grpc-timeout", &n);
    if (n == 0) {
        return ST_OK;
    }
    if (!grpc_timeout_parse(text, &ns)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected up to 8 digits and one of H, M, S, m, u, n for grpc-timeout, "
                         "got \"%.*s\"",
                         STR_ARG(text));
    }
    uint64_t now_ns = clock_now_ns();
    stream->call.deadline_ns = ns < UINT64_MAX - now_ns ? now_ns + ns : UINT64_MAX;
    return ST_OK;
}

static enum status decode_binary(struct grpc_stream *stream, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < stream->n_fields; i++) {
        struct grpc_field *field = &stream->fields[i];
        if (str_ends(field->name, STR("-bin"))) {
            st = grpc_binary_read(stream->call.arena, field->value, &field->value, err);
            if (st != ST_OK) {
                error_prefix(err, "%.*s", STR_ARG(field->name));
            }
        }
    }
    return st;
}

enum status grpc_head_check(struct grpc_stream *stream, int *http, struct error *err) {
    struct grpc_call *call = &stream->call;
    call->fields = stream->fields;
    call->n_fields = stream->n_fields;
    if (stream->head_over) {
        return error_set(err, ST_HEADER_TOO_LARGE,
                         "the metadata has more than %zu bytes (--max-header-size) or %d fields",
                         stream->core->options->limits.max_header_bytes, (int)MOST_FIELDS);
    }
    enum status st = check_http(stream, http, err);
    if (st != ST_OK) {
        return st;
    }
    call->method = find_method(stream->core->options, stream->path);
    if (!call->method) {
        return error_set(err, ST_UNSUPPORTED, "there is no method %.*s", STR_ARG(stream->path));
    }
    st = read_codings(stream, err);
    if (st == ST_OK) {
        st = read_timeout(stream, err);
    }
    return st == ST_OK ? decode_binary(stream, err) : st;
}

/* ---- out ------------------------------------------------------------------------------------- */

static nghttp2_nv nv_of(struct str name, struct str value) {
    /* nghttp2's type has no const; it copies what it keeps. */
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.ptr,
                        .value = (uint8_t *)(uintptr_t)value.ptr,
                        .namelen = name.len,
                        .valuelen = value.len};
}

enum { OWN_FIELDS = 6, SET_FIELDS = 32 };

struct head {
    nghttp2_nv nv[OWN_FIELDS + SET_FIELDS];
    size_t n;
    char status[STATUS_BYTES];
};

static void add(struct head *head, struct str name, struct str value) {
    head->nv[head->n++] = nv_of(name, value);
}

static void add_fields(struct head *head, const struct grpc_field *fields, size_t n) {
    for (size_t i = 0; i < n; i++) {
        add(head, fields[i].name, fields[i].value);
    }
}

static void add_status(struct grpc_stream *stream, struct head *head) {
    static const char *const codes[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
    int code = stream->status >= 0 && stream->status <= LAST_STATUS ? stream->status : 2;
    add(head, STR("grpc-status"), str_of(codes[code]));
    if (stream->message.len > 0) {
        struct buf text;
        buf_init(&text, stream->call.arena, stream->message.len);
        grpc_message_print(&text, stream->message);
        if (!text.failed) {
            add(head, STR("grpc-message"), buf_str(&text));
        }
    }
    add_fields(head, stream->trailers, stream->n_trailers);
}

void grpc_head_submit(struct grpc_stream *stream, bool trailers_only, int http) {
    struct head head = {.n = 0};
    unsigned value = (unsigned)http;
    head.status[0] = (char)('0' + value / 100 % 10);
    head.status[1] = (char)('0' + value / 10 % 10);
    head.status[2] = (char)('0' + value % 10);
    add(&head, STR(":status"), str_make(head.status, 3));
    if (http == 200) {
        add(&head, STR("content-type"), STR("application/grpc"));
        if (stream->answer_coding != HTTP_IDENTITY && !trailers_only) {
            add(&head, STR("grpc-encoding"), str_of(grpc_coding_name(stream->answer_coding)));
        }
        add_fields(&head, stream->set, stream->n_set);
    }
    if (trailers_only && http == 200) {
        add_status(stream, &head);
    }
    stream->submitted = true;
    nghttp2_data_provider provider = grpc_send_provider(stream);
    int code = nghttp2_submit_response(stream->session->h2, stream->id, head.nv, head.n,
                                       trailers_only ? NULL : &provider);
    if (code != 0) {
        stream->session->failed = true;
    }
    stream->core->ask_turn(stream->core, stream->session);
}

int grpc_head_submit_trailers(struct grpc_stream *stream) {
    struct head head = {.n = 0};
    add_status(stream, &head);
    return nghttp2_submit_trailer(stream->session->h2, stream->id, head.nv, head.n);
}

static void set(struct grpc_stream *stream, struct grpc_field **fields, size_t *n, struct str name,
                struct str value) {
    struct arena *arena = stream->call.arena;
    if (!*fields) {
        *fields = arena_calloc(arena, SET_FIELDS / 2, sizeof **fields);
    }
    if (!*fields || *n == SET_FIELDS / 2) {
        return;
    }
    struct buf text;
    buf_init(&text, arena, value.len);
    if (str_ends(name, STR("-bin"))) {
        grpc_binary_print(&text, value);
    } else {
        buf_add_str(&text, value);
    }
    struct grpc_field field = {arena_dup(arena, name), buf_str(&text)};
    if (field.name.ptr && !text.failed) {
        (*fields)[(*n)++] = field;
    }
}

void grpc_set_field(struct grpc_call *call, struct str name, struct str value) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    set(stream, &stream->set, &stream->n_set, name, value);
}

void grpc_set_trailer(struct grpc_call *call, struct str name, struct str value) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    set(stream, &stream->trailers, &stream->n_trailers, name, value);
}
