/* What all gRPC connections of a worker share: nghttp2's settings, deadlines, and the end of calls. */
#include <stdlib.h>

#include "loop/clock.h"
#include "net/grpc_session.h"

enum {
    /* nghttp2's own count does not know which streams were answered: ours does (h2_abuse.h). */
    NO_RESET_LIMIT = 1 << 30,
    MOST_SETTINGS = 32,
    MOST_ACKS = 1000, /* waiting to be sent to a peer who does not read */
};

static enum status make_option(struct grpc_core *core, struct error *err) {
    if (nghttp2_option_new(&core->option) != 0) {
        return error_set(err, ST_NO_MEMORY, "no memory for the gRPC server");
    }
    nghttp2_option_set_no_auto_window_update(core->option, 1);
    nghttp2_option_set_no_closed_streams(core->option, 1);
    nghttp2_option_set_max_settings(core->option, MOST_SETTINGS);
    nghttp2_option_set_max_outbound_ack(core->option, MOST_ACKS);
    nghttp2_option_set_stream_reset_rate_limit(core->option, NO_RESET_LIMIT, NO_RESET_LIMIT);
    nghttp2_option_set_max_send_header_block_length(core->option,
                                                    core->options->limits.max_header_bytes * 2);
    return ST_OK;
}

enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err) {
    core->options = options;
    core->worker = worker;
    enum status st = make_option(core, err);
    if (st == ST_OK) {
        core->callbacks = grpc_session_callbacks();
        if (!core->callbacks) {
            st = error_set(err, ST_NO_MEMORY, "no memory for the gRPC server");
        }
    }
    if (st != ST_OK) {
        grpc_core_fini(core);
    }
    return st;
}

void grpc_core_fini(struct grpc_core *core) {
    nghttp2_option_del(core->option);
    nghttp2_session_callbacks_del(core->callbacks);
    deadlines_fini(&core->deadlines);
    core->option = NULL;
    core->callbacks = NULL;
}

static bool is_over(const struct grpc_stream *stream) {
    return stream->finished && stream->closed && !(stream->session && stream->session->writing);
}

void grpc_core_sweep(struct grpc_core *core) {
    struct grpc_stream *later = NULL;
    while (core->ended) {
        struct grpc_stream *stream = core->ended;
        core->ended = stream->ended_next;
        if (is_over(stream)) {
            grpc_stream_free(stream);
        } else if (stream->finished && stream->closed) {
            stream->ended_next = later;
            later = stream;
        } else { /* whoever completes it asks again */
            stream->sweeping = false;
        }
    }
    core->ended = later;
}

uint64_t grpc_core_tick(struct grpc_core *core, uint64_t now_ns) {
    struct deadline *due;
    while ((due = deadlines_take_due(&core->deadlines, now_ns))) {
        struct grpc_stream *stream =
            (struct grpc_stream *)(void *)((char *)due - offsetof(struct grpc_stream, deadline));
        grpc_stream_cancel(stream, ST_DEADLINE_EXCEEDED, "the call's deadline has passed");
    }
    return deadlines_next_ns(&core->deadlines);
}
