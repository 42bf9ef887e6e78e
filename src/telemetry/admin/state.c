/* First what is served, which is written down here and now, then connections, which their workers
 * write down. */
#include "telemetry/admin/state.h"

#include "core/base/log.h"
#include "telemetry/admin/http_text.h"

enum { LINES_MOST = 2000 }; /* in the log */

static enum status start(struct admin_state *state, struct buf *out, void (*done)(void *cookie),
                         void *cookie, struct error *err) {
    state->print(state->context, out);
    return net_report_start(state->servers, state->n_servers, state->worker, out, done, cookie,
                            err);
}

/* ---- as an answer ---------------------------------------------------------------------------- */

struct answer {
    struct http_exchange *exchange;
    struct buf text;
};

static void answer_done(void *cookie) {
    struct answer *answer = cookie;
    http_text_reply(answer->exchange, 200, "text/plain; charset=utf-8", &answer->text);
}

void admin_state_reply(struct admin_state *state, struct http_exchange *exchange) {
    struct answer *answer = arena_calloc(exchange->arena, 1, sizeof *answer);
    struct error err;
    enum status st = ST_NO_MEMORY;
    if (answer) {
        answer->exchange = exchange;
        buf_init(&answer->text, exchange->arena, 4096);
        st = start(state, &answer->text, answer_done, answer, &err);
    } else {
        error_set(&err, st, "no memory for the answer");
    }
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    }
}

/* ---- in the log ------------------------------------------------------------------------------ */

struct entry {
    struct arena *arena; /* it lies in it */
    struct buf text;
};

static void entry_done(void *cookie) {
    struct entry *entry = cookie;
    struct str rest = buf_str(&entry->text);
    for (size_t n = 0; rest.ptr && rest.len > 0 && n < LINES_MOST; n++) {
        log_event(LOG_WARNING, "state", LOG_STR("line", str_cut(&rest, '\n')));
    }
    arena_free(entry->arena);
}

void admin_state_log(struct admin_state *state) {
    struct arena *arena = arena_new(worker_arenas(state->worker), 0);
    struct entry *entry = arena ? arena_calloc(arena, 1, sizeof *entry) : NULL;
    struct error err;
    if (entry) {
        entry->arena = arena;
        buf_init(&entry->text, arena, 4096);
    }
    if (!entry || start(state, &entry->text, entry_done, entry, &err) != ST_OK) {
        arena_free(arena);
        log_plain(LOG_WARNING, "no memory to write down the state");
    }
}
