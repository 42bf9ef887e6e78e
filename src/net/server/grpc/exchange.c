/* Requests that are not gRPC, on the streams of a connection to a port of HTTP: their bodies are
 * received as the message of a unary call, without its prefix; their responses leave through the
 * send queue, with the windows, timeouts and memory of calls. */
#include <assert.h>

#include "net/server/grpc/session.h"

enum status grpc_exchange_receive(struct grpc_stream *stream, const struct body_plan *plan,
                                  struct error *err) {
    assert(stream->is_exchange);
    return grpc_receiver_begin_unframed(&stream->in, plan, NET_BODY_HTTP, err);
}

static void fail_if(struct grpc_stream *stream, int code) {
    if (code != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror(code));
    }
}

void grpc_exchange_continue(struct grpc_stream *stream) {
    const nghttp2_nv status = grpc_nv(STR(":status"), STR("100"), GRPC_NV_NO_COPY);
    fail_if(stream, nghttp2_submit_headers(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id, NULL,
                                           &status, 1, NULL));
}

bool grpc_exchange_is_open(const struct grpc_stream *stream) {
    return !stream->closed && !stream->reset_submitted;
}

void grpc_exchange_submit_head(struct grpc_stream *stream, const nghttp2_nv *fields,
                               size_t n_fields, bool has_body) {
    nghttp2_data_provider provider = grpc_send_provider(stream);
    grpc_stream_set_response_state(stream, GRPC_RESPONSE_OPEN);
    fail_if(stream, nghttp2_submit_response(stream->session->h2, stream->id, fields, n_fields,
                                            has_body ? &provider : NULL));
    grpc_core_schedule_write(stream->core, stream->session);
}

void grpc_exchange_send(struct grpc_stream *stream, struct arena *arena, const struct piece *pieces,
                        size_t n_pieces, void (*release)(void *user), void *user) {
    const struct grpc_send_queue_options options = {.arena = arena, .is_unframed = true};
    assert(grpc_exchange_is_open(stream));
    if (grpc_send_queue_push(&stream->out, &options, pieces, n_pieces, release, user)) {
        grpc_send_resume(stream);
        grpc_stream_update_timer(stream);
        grpc_core_schedule_write(stream->core, stream->session);
        return;
    }
    if (release) {
        release(user);
    }
    grpc_stream_reset(stream, NGHTTP2_INTERNAL_ERROR); /* a part is missing */
}

void grpc_exchange_timed_out(struct grpc_stream *stream) {
    struct error err;
    if (stream->in.state != GRPC_RECEIVING_STOPPED) {
        error_set(&err, ST_REQUEST_TIMEOUT,
                  "timed out waiting for the request body (--body-timeout)");
        stream->session->http_requests->on_rejected(stream, &err);
    } else if (stream->response_state == GRPC_RESPONSE_SENT) {
        grpc_stream_reset(stream, NGHTTP2_NO_ERROR);
    }
}

void grpc_exchange_finish(struct grpc_stream *stream) {
    if (stream->response_state < GRPC_RESPONSE_ENDING && !stream->call.is_cancelled) {
        grpc_stream_set_response_state(stream, GRPC_RESPONSE_ENDING);
    }
    if (grpc_exchange_is_open(stream)) {
        grpc_send_resume(stream);
        grpc_stream_update_timer(stream);
        grpc_core_schedule_write(stream->core, stream->session);
    }
    grpc_finish(&stream->call, NULL);
}
