/* The head of a call and of its answer: fields gathered within a limit, read, and written. */
#include <assert.h>
#include <stdint.h>

#include "net/server/grpc/session.h"

enum {
    OWN_FIELDS = 6,
    LAST_STATUS = 16,
};

/* ---- in -------------------------------------------------------------------------------------- */

static bool store_pseudo_field(struct grpc_stream *stream, struct str name, struct str value) {
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

void grpc_head_add(struct grpc_stream *stream, struct str name, struct str value) {
    bool pseudo = name.len > 0 && name.ptr[0] == ':';
    bool kept = pseudo ? store_pseudo_field(stream, name, value)
                       : grpc_fields_add(stream->call.arena, &stream->head, name, value);
    stream->head_too_large = stream->head_too_large || !kept;
}

/* gRPC over HTTP2, "Requests": what is no gRPC call is told so in HTTP's own words. */
static enum status check_http(const struct grpc_stream *stream, struct error *err) {
    if (!str_is(stream->http_method, "POST")) {
        return error_set(err, ST_METHOD_NOT_ALLOWED,
                         "this port speaks gRPC: expected POST, got %.*s. HTTP has a port of its "
                         "own (--http)",
                         STR_ARG(stream->http_method));
    }
    if (!grpc_content_type_ok(grpc_find_field(&stream->call, "content-type", NULL))) {
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "this port speaks gRPC: expected the content type application/grpc. HTTP "
                         "has a port of its own (--http)");
    }
    return ST_OK;
}

static enum status read_codings(struct grpc_stream *stream, struct error *err) {
    size_t n;
    struct str name = grpc_find_field(&stream->call, "grpc-encoding", &n);
    if (n > 0 && !grpc_coding_parse(name, &stream->in.coding)) {
        grpc_set_field(&stream->call, STR("grpc-accept-encoding"), STR("identity,deflate,gzip"));
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected grpc-encoding identity, gzip or deflate, got \"%.*s\"",
                         STR_ARG(name));
    }
    if (stream->core->options->limits.compression_level > 0) {
        stream->answer_coding =
            grpc_coding_choose(grpc_find_field(&stream->call, "grpc-accept-encoding", NULL));
    }
    return ST_OK;
}

static enum status read_timeout(struct grpc_stream *stream, struct error *err) {
    size_t n;
    uint64_t ns;
    struct str text = grpc_find_field(&stream->call, "grpc-timeout", &n);
    if (n == 0) {
        return ST_OK;
    }
    if (!grpc_timeout_parse(text, &ns)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected up to 8 digits and one of H, M, S, m, u, n for grpc-timeout, "
                         "got \"%.*s\"",
                         STR_ARG(text));
    }
    uint64_t now_ns = grpc_core_now(stream->core);
    stream->call.deadline_ns = ns < UINT64_MAX - now_ns ? now_ns + ns : UINT64_MAX;
    return ST_OK;
}

enum status grpc_head_check(struct grpc_stream *stream, struct error *err) {
    struct grpc_call *call = &stream->call;
    call->fields = stream->head.items;
    call->n_fields = stream->head.n;
    if (stream->head_too_large) {
        return error_set(err, ST_HEADER_TOO_LARGE,
                         "expected metadata of at most %zu bytes (--max-header-size) and %d fields",
                         stream->core->options->limits.max_header_size, (int)GRPC_MAX_FIELDS);
    }
    enum status st = check_http(stream, err);
    if (st != ST_OK) {
        stream->is_plain = true;
        return st;
    }
    call->method = grpc_core_find_method(stream->core, stream->path);
    if (!call->method) {
        return error_set(err, ST_UNSUPPORTED, "there is no method %.*s here",
                         STR_ARG(stream->path));
    }
    st = read_codings(stream, err);
    if (st == ST_OK) {
        st = read_timeout(stream, err);
    }
    return st == ST_OK ? grpc_fields_decode(call->arena, &stream->head, err) : st;
}

/* ---- out ------------------------------------------------------------------------------------- */

struct head {
    size_t n;
    nghttp2_nv nv[OWN_FIELDS + 2 * GRPC_MAX_SET_FIELDS];
};

static_assert(OWN_FIELDS >= 5, ":status, content-type, grpc-encoding, grpc-status, grpc-message");

static void head_add(struct head *head, struct str name, struct str value, unsigned flags) {
    head->nv[head->n++] = grpc_nv(name, value, flags);
}

static void add_fields(struct head *head, const struct grpc_fields *fields) {
    for (size_t i = 0; i < fields->n; i++) {
        head_add(head, fields->items[i].name, fields->items[i].value, GRPC_NV_COPY);
    }
}

static void add_status(struct grpc_stream *stream, struct head *head) {
    static const char *const codes[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
    int code = stream->status >= 0 && stream->status <= LAST_STATUS ? stream->status : 2;
    head_add(head, STR("grpc-status"), str_of(codes[code]), GRPC_NV_NO_COPY);
    if (stream->message.len > 0) {
        struct buf text;
        buf_init(&text, stream->call.arena, stream->message.len);
        grpc_status_message_print(&text, stream->message);
        if (!text.failed) {
            head_add(head, STR("grpc-message"), buf_str(&text), GRPC_NV_NO_COPY_NAME);
        }
    }
    add_fields(head, &stream->trailers);
}

void grpc_head_submit(struct grpc_stream *stream, bool trailers_only) {
    struct head head;
    head.n = 0;
    head_add(&head, STR(":status"), STR("200"), GRPC_NV_NO_COPY);
    head_add(&head, STR("content-type"), STR("application/grpc"), GRPC_NV_NO_COPY);
    if (trailers_only) {
        add_status(stream, &head);
    } else if (stream->answer_coding != HTTP_IDENTITY) {
        head_add(&head, STR("grpc-encoding"), str_of(grpc_coding_name(stream->answer_coding)),
                 GRPC_NV_NO_COPY);
    }
    add_fields(&head, &stream->set);
    nghttp2_data_provider provider = grpc_send_provider(stream);
    int code = nghttp2_submit_response(stream->session->h2, stream->id, head.nv, head.n,
                                       trailers_only ? NULL : &provider);
    if (code != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror(code));
    }
    grpc_core_schedule_write(stream->core, stream->session);
}

int grpc_head_submit_trailers(struct grpc_stream *stream) {
    struct head head;
    head.n = 0;
    add_status(stream, &head);
    return nghttp2_submit_trailer(stream->session->h2, stream->id, head.nv, head.n);
}

void grpc_set_field(struct grpc_call *call, struct str name, struct str value) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    grpc_fields_add_encoded(call->arena, &stream->set, GRPC_MAX_SET_FIELDS, name, value);
}

void grpc_set_trailer(struct grpc_call *call, struct str name, struct str value) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    grpc_fields_add_encoded(call->arena, &stream->trailers, GRPC_MAX_SET_FIELDS, name, value);
}

struct str grpc_find_field(const struct grpc_call *call, const char *name, size_t *n) {
    return grpc_fields_find(call->fields, call->n_fields, name, n);
}
