/* What all gRPC connections of a worker share: nghttp2's settings, the table of methods, who asked
 * for a turn, deadlines, and the end of calls. */
#include <assert.h>
#include <stdlib.h>

#include "core/event/clock.h"
#include "net/server/grpc/session.h"

enum {
    /* nghttp2's own count does not know which streams were answered: ours does
     * (net/transport/h2_rate_limit.h). */
    NO_RESET_LIMIT = 1 << 30,
    MAX_SETTINGS = 32,
    MAX_ACKS = 1000, /* waiting to be sent to a peer who does not read */
    /* What a method may say in the head or the trailers of an answer. */
    MAX_HEADER_BLOCK_BYTES = 1 << 20,
};

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the gRPC server");
}

static enum status make_option(struct grpc_core *core, struct error *err) {
    if (nghttp2_option_new(&core->option) != 0) {
        return no_memory(err);
    }
    nghttp2_option_set_no_auto_window_update(core->option, 1);
    nghttp2_option_set_no_closed_streams(core->option, 1);
    nghttp2_option_set_max_settings(core->option, MAX_SETTINGS);
    nghttp2_option_set_max_outbound_ack(core->option, MAX_ACKS);
    nghttp2_option_set_stream_reset_rate_limit(core->option, NO_RESET_LIMIT, NO_RESET_LIMIT);
    nghttp2_option_set_max_send_header_block_length(core->option, MAX_HEADER_BLOCK_BYTES);
    return ST_OK;
}

static enum status make_routes(struct grpc_core *core, struct error *err) {
    const struct grpc_server_options *options = core->options;
    core->routes = calloc(options->n_methods + 1, sizeof(*core->routes));
    if (!core->routes) {
        return no_memory(err);
    }
    for (size_t i = 0; i < options->n_methods; i++) {
        const struct grpc_method *method = &options->methods[i];
        core->routes[i] = (struct grpc_route){str_of(method->path), method};
    }
    return ST_OK;
}

enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err) {
    core->options = options;
    core->worker = worker;
    core->blocks.max_cached_bytes = H2_MEM_MAX_BYTES;
    core->receiver_options =
        (struct grpc_receiver_options){.arenas = worker_arenas(worker),
                                       .pool = core->pool,
                                       .budget = options->budget,
                                       .max_message_bytes = options->limits.max_message_bytes,
                                       .message_memory_bytes = options->limits.request_memory,
                                       .setting = "--max-body-size"};
    core->stream_timers.after_ns[GRPC_WAIT_MESSAGE] = options->limits.body_timeout_ns;
    core->stream_timers.after_ns[GRPC_WAIT_WINDOW] = options->limits.write_timeout_ns;
    enum status st = make_option(core, err);
    if (st == ST_OK) {
        st = make_routes(core, err);
    }
    if (st == ST_OK) {
        core->callbacks = grpc_frames_callbacks();
        st = core->callbacks ? ST_OK : no_memory(err);
    }
    if (st != ST_OK) {
        grpc_core_fini(core);
    }
    return st;
}

void grpc_core_fini(struct grpc_core *core) {
    assert(!core->ended && !core->scheduled);
    nghttp2_option_del(core->option);
    nghttp2_session_callbacks_del(core->callbacks);
    timer_heap_fini(&core->deadlines);
    free(core->routes);
    free(core->spare_output);
    small_blocks_fini(&core->blocks);
    *core = (struct grpc_core){0};
}

const struct grpc_method *grpc_core_find_method(const struct grpc_core *core, struct str path) {
    for (size_t i = 0; i < core->options->n_methods; i++) {
        if (str_eq(path, core->routes[i].path)) {
            return core->routes[i].method;
        }
    }
    return NULL;
}

uint64_t grpc_core_now(const struct grpc_core *core) {
    return core->running ? core->now_ns : clock_now_ns();
}

/* ---- turns ----------------------------------------------------------------------------------- */

void grpc_core_schedule_write(struct grpc_core *core, struct grpc_session *session) {
    if (session && session->h2 && !session->scheduled) {
        session->scheduled = true;
        session->next_scheduled = NULL;
        if (core->scheduled) {
            core->last_scheduled->next_scheduled = session;
        } else {
            core->scheduled = session;
        }
        core->last_scheduled = session;
    }
    core->schedule_deferred(core);
}

struct grpc_session *grpc_core_take_scheduled(struct grpc_core *core) {
    struct grpc_session *list = core->scheduled;
    core->scheduled = core->last_scheduled = NULL;
    return list;
}

void grpc_core_unschedule(struct grpc_core *core, struct grpc_session *session) {
    struct grpc_session *before = NULL, *at = core->scheduled;
    while (at && at != session) {
        before = at;
        at = at->next_scheduled;
    }
    if (!at) {
        return;
    }
    session->scheduled = false;
    *(before ? &before->next_scheduled : &core->scheduled) = session->next_scheduled;
    core->last_scheduled = core->last_scheduled == session ? before : core->last_scheduled;
}

/* All of them end at one time. */
void grpc_core_sweep(struct grpc_core *core) {
    assert(!core->running);
    core->running = true;
    core->now_ns = core->ended ? clock_now_ns() : 0;
    while (core->ended) {
        struct grpc_stream *stream = core->ended;
        core->ended = stream->ended_next;
        stream->in_sweep_list = false;
        if (grpc_stream_can_free(stream)) { /* else whoever completes it asks again */
            grpc_stream_free(stream);
        }
    }
    core->running = false;
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct grpc_stream *stream_of_deadline(struct timer_node *deadline) {
    return (struct grpc_stream *)(void *)((char *)deadline -
                                          offsetof(struct grpc_stream, deadline));
}

static struct grpc_stream *stream_of_timer(struct list_timer *timeout) {
    return (struct grpc_stream *)(void *)((char *)timeout - offsetof(struct grpc_stream, timeout));
}

void grpc_core_run_timers(struct grpc_core *core, uint64_t now_ns) {
    struct timer_node *deadline;
    struct list_timer *timeout;
    struct error err;
    core->running = true;
    core->now_ns = now_ns;
    while ((deadline = timer_heap_pop_due(&core->deadlines, now_ns))) {
        error_set(&err, ST_DEADLINE_EXCEEDED, "the call's deadline has passed (grpc-timeout)");
        grpc_stream_cancel(stream_of_deadline(deadline), &err);
    }
    while ((timeout = timer_list_pop_due(&core->stream_timers, now_ns))) {
        grpc_stream_timed_out(stream_of_timer(timeout), (enum grpc_wait)timeout->timer_class);
    }
    core->running = false;
}

uint64_t grpc_core_next_timer_ns(const struct grpc_core *core) {
    uint64_t a = timer_heap_next_ns(&core->deadlines), b = timer_list_next_ns(&core->stream_timers);
    return a < b ? a : b;
}
