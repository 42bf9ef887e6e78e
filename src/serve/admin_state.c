/* Models first, which are written down here and now, then connections, which their workers write
 * down. */
#include "serve/admin_state.h"

#include "base/log.h"
#include "loop/clock.h"
#include "model/state.h"
#include "model/statistics.h"
#include "serve/http_text.h"

enum {
    MODELS_MOST = 200, /* that are doing something */
    REST_MOST = 50,    /* names of others */
    LINES_MOST = 2000, /* in the log */
};

/* ---- models ---------------------------------------------------------------------------------- */

struct models {
    struct buf *out;
    size_t n_active, n_resting;
};

static bool is_active(struct model_version *version) {
    uint64_t n_queued, n_running, n_instances;
    model_version_load(version, &n_queued, &n_running, &n_instances);
    return n_queued + n_running > 0;
}

static void print_active(void *cookie, const struct repository_entry *entry) {
    struct models *models = cookie;
    if (entry->version && is_active(entry->version) && models->n_active++ < MODELS_MOST) {
        model_version_state_print(entry->version, models->out);
    }
}

static void print_resting(void *cookie, const struct repository_entry *entry) {
    struct models *models = cookie;
    if (entry->version && is_active(entry->version)) {
        return;
    }
    if (models->n_resting++ < REST_MOST) {
        buf_printf(models->out, "%s%.*s %llu%s%s",
                   models->n_resting > 1 ? ", " : "at rest: ", STR_ARG(entry->model),
                   (unsigned long long)entry->number, entry->version ? "" : " ",
                   entry->version ? "" : repository_phase_name(entry->phase));
    }
}

static void print_models(struct repository *repository, struct buf *out) {
    struct models models = {.out = out};
    repository_visit(repository, print_active, &models);
    if (models.n_active > MODELS_MOST) {
        buf_printf(out, "and %zu more models\n", models.n_active - MODELS_MOST);
    }
    repository_visit(repository, print_resting, &models);
    if (models.n_resting > REST_MOST) {
        buf_printf(out, " and %zu more", models.n_resting - REST_MOST);
    }
    if (models.n_resting > 0) {
        buf_add_char(out, '\n');
    }
}

static enum status start(struct admin_state *state, struct buf *out, void (*done)(void *cookie),
                         void *cookie, struct error *err) {
    print_models(state->repository, out);
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
