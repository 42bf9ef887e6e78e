/* What the server says on a call: its head, messages, and the status, which comes in trailers, with
 * the head, or has to be inferred where somebody between answered who knows no gRPC. Of all of it
 * nothing is believed. */
#include <assert.h>

#include "codec/protobuf/grpc_status.h"
#include "net/client/grpc/session.h"

/* It broke a rule. */
static void set_protocol_error(struct grpc_client_stream *stream, const char *what) {
    struct error err;
    error_set(&err, ST_BAD_ANSWER, "%s", what);
    grpc_client_stream_set_status(stream, -1, &err);
}

/* Bytes that will not be looked at any more, or have found their place: the server may send
 * more. */
static void consume_window(struct grpc_client_stream *stream, size_t n_bytes) {
    if (n_bytes > 0 && !stream->closed && !stream->remote_ended && stream->session) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
        grpc_client_session_schedule_write(stream->session);
    }
}

void grpc_client_response_stop(struct grpc_client_stream *stream) {
    consume_window(stream, grpc_receiver_stop(&stream->in));
}

/* ---- the status ------------------------------------------------------------------------------ */

static struct str find_trailer(const struct grpc_client_stream *stream, const char *name,
                               size_t *n) {
    return grpc_fields_find(stream->trailers.items, stream->trailers.n, name, n);
}

/* As the trailers say. gRPC over HTTP2, "Responses". */
static void set_status_from_trailers(struct grpc_client_stream *stream, struct str status) {
    struct error err;
    int code;
    if (!grpc_code_parse(status, &code)) {
        error_set(&err, ST_BAD_ANSWER, "the server's grpc-status is \"%.*s\", expected a number",
                  STR_ARG(status));
        grpc_client_stream_set_status(stream, -1, &err);
        return;
    }
    if (code == GRPC_CODE_OK && !stream->streams && stream->in.n_reads_wanted > 0) {
        set_protocol_error(stream, "the server said OK without a message");
        return;
    }
    struct str text = find_trailer(stream, "grpc-message", NULL);
    text = grpc_status_message_parse(stream->call.arena, text);
    if (code == GRPC_CODE_OK) {
        error_set(&err, ST_OK, "%s", "");
    } else if (text.len == 0) {
        error_set(&err, ST_REFUSED, "the server gave no reason");
    } else {
        error_set(&err, ST_REFUSED, "%.*s", STR_ARG(text));
    }
    grpc_client_stream_set_status(stream, code, &err);
}

/* All has come, and was given to the caller. */
static void set_status_at_end(struct grpc_client_stream *stream) {
    size_t n;
    struct str status = find_trailer(stream, "grpc-status", &n);
    if (!grpc_receiver_is_at_boundary(&stream->in)) {
        set_protocol_error(stream, "the server ended the call within a message");
    } else if (n != 1) {
        set_protocol_error(stream, n == 0 ? "the server ended the call without a status"
                                          : "the server ended the call with several statuses");
    } else {
        set_status_from_trailers(stream, status);
    }
}

void grpc_client_response_on_reset(struct grpc_client_stream *stream, uint32_t code) {
    struct error err;
    bool refused = code == NGHTTP2_REFUSED_STREAM; /* RFC 9113, 8.7: it may be tried again */
    stream->call.not_processed = refused && stream->state < GRPC_CLIENT_STATUS_SET;
    if (refused && stream->session->goaway_error.status != ST_OK) { /* which says why, and no call
                                                                       can */
        grpc_client_stream_set_status(stream, -1, &stream->session->goaway_error);
        return;
    }
    error_set(&err, ST_REFUSED, "the server %s: %s",
              refused ? "did not begin the call" : "reset the call", nghttp2_http2_strerror(code));
    grpc_client_stream_set_status(stream, grpc_code_from_reset(code), &err);
}

/* ---- head and trailers ----------------------------------------------------------------------- */

void grpc_client_response_add_field(struct grpc_client_stream *stream, struct str name,
                                    struct str value) {
    struct grpc_fields *fields = stream->head_received ? &stream->trailers : &stream->head;
    if (name.len > 0 && name.ptr[0] == ':') { /* nghttp2 lets pass nothing but a :status */
        int status = 0;
        for (size_t i = 0; i < value.len && i < 3; i++) {
            status = 10 * status + (value.ptr[i] - '0');
        }
        stream->http_status = status;
        return;
    }
    stream->head_too_large =
        !grpc_fields_add(stream->call.arena, fields, name, value) || stream->head_too_large;
}

/* An answer of somebody who knows no gRPC, or none that can be read. */
static void check_head(struct grpc_client_stream *stream) {
    struct grpc_fields *head = &stream->head;
    struct error err;
    size_t n_codings, n_statuses;
    struct str type = grpc_fields_find(head->items, head->n, "content-type", NULL);
    struct str coding = grpc_fields_find(head->items, head->n, "grpc-encoding", &n_codings);
    grpc_fields_find(head->items, head->n, "grpc-status", &n_statuses);
    if (n_statuses > 0) {
        return; /* whatever else it is */
    }
    if (stream->http_status != 200) {
        error_set(&err, ST_REFUSED, "the server answered HTTP %d without a gRPC status",
                  stream->http_status);
        grpc_client_stream_set_status(stream, grpc_code_from_http(stream->http_status), &err);
    } else if (!grpc_content_type_ok(type)) {
        error_set(&err, ST_BAD_ANSWER,
                  "the answer is not gRPC: its content type is \"%.*s\", expected application/grpc",
                  STR_ARG(type));
        grpc_client_stream_set_status(stream, -1, &err);
    } else if (n_codings > 0 && !grpc_coding_parse(coding, &stream->in.coding)) {
        error_set(&err, ST_BAD_ANSWER,
                  "the answer's grpc-encoding is \"%.*s\", accepted are identity, deflate and gzip",
                  STR_ARG(coding));
        grpc_client_stream_set_status(stream, -1, &err);
    }
}

static void set_head_too_large(struct grpc_client_stream *stream) {
    struct error err;
    error_set(&err, ST_HEADER_TOO_LARGE,
              "the answer's metadata is over the limit of %llu bytes, or of %d fields",
              (unsigned long long)stream->core->limits.max_header_size, (int)GRPC_MAX_FIELDS);
    grpc_client_stream_set_status(stream, -1, &err);
}

/* Returns: whether all of it can be read. */
static bool decode_fields(struct grpc_client_stream *stream, struct grpc_fields *fields) {
    struct error err;
    if (stream->head_too_large) {
        set_head_too_large(stream);
    } else if (grpc_fields_decode(stream->call.arena, fields, &err) != ST_OK) {
        set_protocol_error(stream, err.text);
    }
    return stream->state == GRPC_CLIENT_OPEN;
}

void grpc_client_response_finish_head(struct grpc_client_stream *stream, bool last) {
    if (stream->state != GRPC_CLIENT_OPEN) {
        return;
    }
    if (stream->head_received) {
        (void)decode_fields(stream, &stream->trailers);
        return;
    }
    if (stream->http_status / 100 == 1) { /* RFC 9110, 15.2: the answer itself follows */
        stream->head.n = 0;
        return;
    }
    stream->head_received = true;
    if (decode_fields(stream, &stream->head)) {
        check_head(stream);
    }
    if (last) { /* gRPC over HTTP2, "Trailers-Only" */
        stream->trailers = stream->head;
    } else if (stream->state == GRPC_CLIENT_OPEN) {
        stream->call.fields = stream->head.items;
        stream->call.n_fields = stream->head.n;
        grpc_client_stream_emit(stream, GRPC_CLIENT_HEAD);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What is wrong with a message's bytes. */
static void set_message_error(struct grpc_client_stream *stream, struct error *err) {
    const struct grpc_client_limits *limits = &stream->core->limits;
    if (err->status == ST_BODY_TOO_LARGE) {
        error_set(err, ST_BODY_TOO_LARGE, "the answer has a message of more than %llu bytes (%s)",
                  (unsigned long long)limits->max_message_bytes, limits->setting);
    } else if (err->status != ST_NO_MEMORY && err->status != ST_OVERLOADED) {
        error_prefix(err, "the server's message");
        err->status = ST_BAD_ANSWER;
    }
    grpc_client_stream_set_status(stream, -1, err);
}

static enum status resume_pending(struct grpc_client_stream *stream, struct error *err) {
    size_t n_used;
    enum status st = grpc_receiver_resume(&stream->in, &n_used, err);
    consume_window(stream, n_used);
    return st;
}

static void deliver_message(struct grpc_client_stream *stream) {
    stream->call.message = grpc_receiver_take(&stream->in);
    grpc_client_stream_emit(stream, GRPC_CLIENT_MESSAGE);
    stream->call.message = NULL;
}

/* All has come, and nothing of it is kept. */
static bool is_at_end(const struct grpc_client_stream *stream) {
    return stream->remote_ended && stream->in.state < GRPC_RECEIVED &&
           !stream->in.pending_input.data;
}

void grpc_client_response_deliver(struct grpc_client_stream *stream) {
    struct error err;
    if (stream->delivering || stream->state != GRPC_CLIENT_OPEN) {
        return; /* further up the stack it goes on; or nothing is wanted any more */
    }
    stream->delivering = true;
    enum status st = resume_pending(stream, &err);
    while (st == ST_OK && stream->in.state == GRPC_RECEIVED && stream->in.n_reads_wanted > 0) {
        deliver_message(stream);
        st = resume_pending(stream, &err);
    }
    if (st != ST_OK) {
        set_message_error(stream, &err);
    } else if (is_at_end(stream)) {
        set_status_at_end(stream);
    }
    stream->delivering = false;
}

void grpc_client_response_add_data(struct grpc_client_stream *stream, struct str data) {
    struct grpc_receiver *in = &stream->in;
    struct error err;
    enum status st = ST_OK;
    if (stream->state == GRPC_CLIENT_OPEN && !stream->head_received) {
        set_protocol_error(stream, "the server sent a message before its head");
    }
    while (st == ST_OK && data.len > 0 && grpc_receiver_may_add(in)) {
        size_t before = data.len;
        st = grpc_receiver_add(in, &data, &err);
        consume_window(stream, before - data.len);
        if (st == ST_OK && in->state == GRPC_RECEIVED) {
            grpc_client_response_deliver(stream);
        }
    }
    if (in->state == GRPC_RECEIVING_STOPPED) {
        consume_window(stream, data.len);
    } else if (st == ST_OK && data.len > 0 && !stream->streams) {
        set_protocol_error(stream, "the server sent several messages, expected one");
        consume_window(stream, data.len);
    } else if (st == ST_OK && data.len > 0) {
        st = grpc_receiver_buffer_copy(in, data, &err);
    }
    if (st != ST_OK) {
        set_message_error(stream, &err);
    }
}

void grpc_client_response_on_end_stream(struct grpc_client_stream *stream) {
    stream->remote_ended = true;
    grpc_client_response_deliver(stream);
}
