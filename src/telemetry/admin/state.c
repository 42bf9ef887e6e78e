/* The state report: first what is served, printed at once, then the connections, which their
 * workers print. */
#include "telemetry/admin/state.h"

#include "core/base/log.h"
#include "telemetry/admin/http_text.h"

enum { MAX_LOG_LINES = 2000 }; /* of one report */

static enum status start_report(struct admin_state *state, struct worker *worker, struct buf *out,
                                void (*done)(void *user), void *user, struct error *err) {
    state->print(state->context, out);
    return net_report_start(state->servers, state->n_servers, worker, out, done, user, err);
}

/* ---- as a response --------------------------------------------------------------------------- */

struct state_reply {
    struct http_exchange *exchange;
    struct buf text;
};

static void reply_done(void *user) {
    struct state_reply *reply = user;
    http_text_reply(reply->exchange, 200, "text/plain; charset=utf-8", &reply->text);
}

void admin_state_reply(struct admin_state *state, struct http_exchange *exchange) {
    struct state_reply *reply = arena_calloc(exchange->arena, 1, sizeof *reply);
    struct error err;
    enum status st = ST_NO_MEMORY;
    if (reply) {
        reply->exchange = exchange;
        buf_init(&reply->text, exchange->arena, 4096);
        st = start_report(state, state->worker, &reply->text, reply_done, reply, &err);
    } else {
        error_no_memory(&err, "the answer");
    }
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    }
}

/* ---- the status page's numbers --------------------------------------------------------------- */

struct status_reply {
    struct http_exchange *exchange;
    struct net_memory_report memory;
    void (*print)(void *context, const struct net_memory_report *memory, struct buf *out);
    void *context;
};

static void status_reply_done(void *user) {
    struct status_reply *reply = user;
    struct buf body;
    buf_init(&body, reply->exchange->arena, 16384);
    reply->print(reply->context, &reply->memory, &body);
    http_json_reply(reply->exchange, 200, &body);
}

void admin_status_reply(struct admin_state *state, struct http_exchange *exchange,
                        void (*print)(void *context, const struct net_memory_report *memory,
                                      struct buf *out),
                        void *context) {
    struct status_reply *reply = arena_calloc(exchange->arena, 1, sizeof *reply);
    struct error err;
    enum status st = error_no_memory(&err, "the answer");
    if (reply) {
        reply->exchange = exchange;
        reply->print = print;
        reply->context = context;
        st = net_memory_report_start(state->servers, state->n_servers, state->worker,
                                     &reply->memory, status_reply_done, reply, &err);
    }
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    }
}

/* ---- in the log ------------------------------------------------------------------------------ */

struct state_log {
    struct arena *arena; /* the struct lives in it */
    struct buf text;
};

static void state_log_done(void *user) {
    struct state_log *state_log = user;
    struct str rest = buf_str(&state_log->text);
    for (size_t n = 0; rest.ptr && rest.len > 0 && n < MAX_LOG_LINES; n++) {
        log_report("state", str_cut(&rest, '\n'));
    }
    arena_free(state_log->arena);
}

void admin_state_log(struct admin_state *state, struct worker *worker) {
    struct arena *arena = arena_new(worker_arenas(worker), 0);
    struct state_log *state_log = arena ? arena_calloc(arena, 1, sizeof *state_log) : NULL;
    struct error err;
    if (state_log) {
        state_log->arena = arena;
        buf_init(&state_log->text, arena, 4096);
    }
    if (!state_log ||
        start_report(state, worker, &state_log->text, state_log_done, state_log, &err) != ST_OK) {
        arena_free(arena);
        log_message(LOG_WARNING, "out of memory for the state report");
    }
}
