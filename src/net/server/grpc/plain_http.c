/* Answers to requests of HTTP/2 that are no gRPC: a status of HTTP's and a sentence (gRPC over
 * HTTP2, "Requests": 415 for another content type). They wait for the end of the request, as HTTP's
 * servers do, so that what is wrong with its frames is still seen. */
#include <string.h>

#include "net/server/grpc/session.h"
#include "net/transport/grpc/fields.h"

void grpc_plain_refuse(struct grpc_stream *stream, const struct error *err) {
    const struct grpc_core *core = stream->core;
    if (core->on_refused) {
        core->on_refused(stream->session, err, false);
    }
    stream->status = status_http(err->status);
    stream->message = arena_printf(stream->call.arena, "%s\n", err->text);
    grpc_receive_discard(stream);
    grpc_stream_update_timer(stream);
}

static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct grpc_stream *stream = source->ptr;
    struct str *left = &stream->message;
    size_t n = left->len < length ? left->len : length;
    (void)h2, (void)id, (void)user;
    if (n > 0) {
        memcpy(buf, left->ptr, n);
        *left = str_make(left->ptr + n, left->len - n);
    }
    *flags = left->len == 0 ? NGHTTP2_DATA_FLAG_EOF : NGHTTP2_DATA_FLAG_NONE;
    return (ssize_t)n;
}

void grpc_plain_answer(struct grpc_stream *stream) {
    struct str status = arena_printf(stream->call.arena, "%d", stream->status);
    const nghttp2_nv nv[] = {
        grpc_nv(STR(":status"), status, GRPC_NV_NO_COPY_NAME),
        grpc_nv(STR("content-type"), STR("text/plain; charset=utf-8"), GRPC_NV_NO_COPY),
        grpc_nv(STR("allow"), STR("POST"), GRPC_NV_NO_COPY),
    };
    if (stream->closed || stream->response_state != GRPC_RESPONSE_NONE) {
        return;
    }
    size_t n = stream->status == status_http(ST_METHOD_NOT_ALLOWED) ? 3 : 2;
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = on_read};
    grpc_stream_set_response_state(stream, GRPC_RESPONSE_ENDING);
    stream->response_started = true;
    if (!status.ptr ||
        nghttp2_submit_response(stream->session->h2, stream->id, nv, n, &provider) != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, "no memory for an answer");
    }
    grpc_stream_update_timer(stream);
    grpc_core_schedule_write(stream->core, stream->session);
}
