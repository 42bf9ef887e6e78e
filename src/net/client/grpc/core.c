/* What all connections of a client share: nghttp2's settings, calls that wait, deadlines, and the
 * end of calls. */
#include <assert.h>
#include <stdlib.h>

#include "core/event/clock.h"
#include "net/client/grpc/session.h"

enum {
    MAX_SETTINGS = 32,
    MAX_ACKS = 1000, /* that wait to be sent to a server who does not read */
    MAX_HEADER_BLOCK_BYTES = 1 << 20,
    MAX_POOLED_BYTES = 256 << 20, /* of large messages' memory, kept for the next ones */
};

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a gRPC client");
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static uint64_t or_default(uint64_t value, uint64_t otherwise) {
    return value > 0 ? value : otherwise;
}

static void set_default_limits(struct grpc_client_limits *limits) {
    limits->max_message_bytes = or_default(limits->max_message_bytes, 256 << 20);
    limits->setting = limits->setting ? limits->setting : "max_message_bytes";
    limits->max_header_size = or_default(limits->max_header_size, 64 << 10);
    limits->connect_timeout_ns =
        or_default(limits->connect_timeout_ns, UINT64_C(20) * 1000 * 1000 * 1000);
    limits->initial_backoff_ns = or_default(limits->initial_backoff_ns, UINT64_C(100000000));
    limits->max_backoff_ns = or_default(limits->max_backoff_ns, UINT64_C(10) * 1000 * 1000 * 1000);
    limits->stream_window_bytes = (uint32_t)or_default(limits->stream_window_bytes, 4 << 20);
    limits->connection_window_bytes =
        (uint32_t)or_default(limits->connection_window_bytes, 64 << 20);
    limits->n_connections = (unsigned)or_default(limits->n_connections, 1);
}

static enum status make_option(struct grpc_client_core *core, struct error *err) {
    if (nghttp2_option_new(&core->option) != 0) {
        return no_memory(err);
    }
    nghttp2_option_set_no_auto_window_update(core->option, 1);
    nghttp2_option_set_max_settings(core->option, MAX_SETTINGS);
    nghttp2_option_set_max_outbound_ack(core->option, MAX_ACKS);
    nghttp2_option_set_max_send_header_block_length(core->option, MAX_HEADER_BLOCK_BYTES);
    return ST_OK;
}

enum status grpc_client_core_init(struct grpc_client_core *core, struct error *err) {
    set_default_limits(&core->limits);
    core->budget.body_memory = UINT64_MAX;
    core->blocks.max_cached_bytes = H2_MEM_MAX_BYTES;
    body_pool_init(&core->pool, MAX_POOLED_BYTES);
    core->receiver_options =
        (struct grpc_receiver_options){.arenas = core->arenas,
                                       .pool = &core->pool,
                                       .budget = &core->budget,
                                       .max_message_bytes = core->limits.max_message_bytes,
                                       .setting = core->limits.setting};
    enum status st = make_option(core, err);
    if (st == ST_OK) {
        core->callbacks = grpc_client_frames_callbacks();
        st = core->callbacks ? ST_OK : no_memory(err);
    }
    if (st != ST_OK) {
        grpc_client_core_fini(core);
    }
    return st;
}

void grpc_client_core_fini(struct grpc_client_core *core) {
    assert(core->n_alive == 0);
    nghttp2_option_del(core->option);
    nghttp2_session_callbacks_del(core->callbacks);
    timer_heap_fini(&core->deadlines);
    body_pool_fini(&core->pool);
    free(core->spare_output);
    small_blocks_fini(&core->blocks);
    *core = (struct grpc_client_core){0};
}

uint64_t grpc_client_core_now(const struct grpc_client_core *core) {
    return core->running ? core->now_ns : clock_now_ns();
}

/* ---- calls that wait ------------------------------------------------------------------------- */

void grpc_client_core_dispatch(struct grpc_client_core *core, struct grpc_client_session *session) {
    while (core->waiting.first && grpc_client_session_can_start_call(session) &&
           grpc_client_stream_start(core->waiting.first, session)) {
    }
}

void grpc_client_core_fail_waiting(struct grpc_client_core *core, const struct error *err,
                                   bool all) {
    struct grpc_client_stream *stream = core->waiting.first;
    while (stream) {
        struct grpc_client_stream *next = stream->next;
        if (all || !stream->wait_for_ready) {
            grpc_client_stream_set_status(stream, -1, err);
        }
        stream = next;
    }
}

/* ---- the end of calls, and time -------------------------------------------------------------- */

void grpc_client_core_sweep(struct grpc_client_core *core) {
    assert(!core->running);
    while (core->ended) {
        struct grpc_client_stream *stream = core->ended;
        core->ended = stream->ended_next;
        stream->in_sweep_list = false;
        grpc_client_stream_sweep(stream);
    }
}

static struct grpc_client_stream *stream_of_deadline(struct timer_node *deadline) {
    return (struct grpc_client_stream *)(void *)((char *)deadline -
                                                 offsetof(struct grpc_client_stream, deadline));
}

void grpc_client_core_run_timers(struct grpc_client_core *core, uint64_t now_ns) {
    struct timer_node *deadline;
    struct error err;
    core->running = true;
    core->now_ns = now_ns;
    while ((deadline = timer_heap_pop_due(&core->deadlines, now_ns))) {
        struct grpc_client_stream *stream = stream_of_deadline(deadline);
        error_set(&err, ST_DEADLINE_EXCEEDED,
                  stream->state == GRPC_CLIENT_WAITING ? "there was no connection in time"
                                                       : "no answer came in time");
        grpc_client_stream_set_status(stream, -1, &err);
    }
    core->running = false;
}

uint64_t grpc_client_core_next_timer_ns(const struct grpc_client_core *core) {
    return timer_heap_next_ns(&core->deadlines);
}
