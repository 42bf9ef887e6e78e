/* The progress of loads. */
#include "program/model_server/load_progress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "program/options/help.h"

enum { DEFAULT_COLUMNS = 80 };
static const uint64_t NS_PER_S = 1000000000;

static uint64_t seconds_of(const struct repository_loads *loads, uint64_t now_ns) {
    return now_ns > loads->began_ns ? (now_ns - loads->began_ns) / NS_PER_S : 0;
}

void load_progress_print(struct buf *out, const struct repository_loads *loads, uint64_t now_ns) {
    buf_printf(out, "loading %s: %" PRIu64 " s", loads->model, seconds_of(loads, now_ns));
    if (loads->n_start > 1 && loads->n_start_done < loads->n_start) {
        buf_printf(out, " (%zu of %zu models are done)", loads->n_start_done, loads->n_start);
    } else if (loads->n > 1) {
        buf_printf(out, " (and %zu more)", loads->n - 1);
    }
}

bool load_progress_is_due(const struct repository_loads *loads, uint64_t logged_ns,
                          uint64_t now_ns) {
    uint64_t since_ns = logged_ns > loads->began_ns ? logged_ns : loads->began_ns;
    return loads->n > 0 && now_ns >= since_ns + LOAD_PROGRESS_LOG_SECONDS * NS_PER_S;
}

static void show(struct load_progress *progress, const struct repository_loads *loads,
                 uint64_t now_ns) {
    struct arena *arena = arena_new(worker_arenas(progress->main), 0);
    if (arena) {
        struct buf line;
        buf_init(&line, arena, 128);
        load_progress_print(&line, loads, now_ns);
        log_status_show(buf_str(&line), terminal_columns(STDERR_FILENO, DEFAULT_COLUMNS));
        progress->shown = true;
    }
    arena_free(arena);
}

static void look_later(struct load_progress *progress, uint64_t now_ns) {
    timer_start(worker_timers(progress->main), &progress->timer,
                now_ns + LOAD_PROGRESS_SECONDS * NS_PER_S);
}

static void on_look(struct timer *timer) {
    struct load_progress *progress = CONTAINER_OF(timer, struct load_progress, timer);
    struct repository_loads loads;
    uint64_t now_ns = clock_now_ns();
    repository_get_loads(progress->repository, &loads);
    if (progress->on_terminal && loads.n > 0 &&
        seconds_of(&loads, now_ns) >= LOAD_PROGRESS_SECONDS) {
        show(progress, &loads, now_ns);
    } else if (progress->on_terminal) {
        load_progress_clear(progress);
    } else if (load_progress_is_due(&loads, progress->logged_ns, now_ns)) {
        progress->logged_ns = now_ns;
        log_event(LOG_INFO, "model still loading", LOG_CSTR("model", loads.model),
                  LOG_U64("version", loads.version), LOG_U64("seconds", seconds_of(&loads, now_ns)),
                  LOG_U64("loading", loads.n), LOG_U64("done", loads.n_start_done),
                  LOG_U64("models", loads.n_start));
    }
    look_later(progress, now_ns);
}

void load_progress_start(struct load_progress *progress, struct repository *repository,
                         struct worker *main, bool is_text) {
    const char *term = getenv("TERM");
    bool redraws = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    *progress = (struct load_progress){.repository = repository,
                                       .main = main,
                                       .timer = {.on_expire = on_look},
                                       .on_terminal = is_text && redraws};
    look_later(progress, clock_now_ns());
}

void load_progress_clear(struct load_progress *progress) {
    if (progress->shown) {
        log_status_show(str_make("", 0), DEFAULT_COLUMNS);
        progress->shown = false;
    }
}

void load_progress_stop(struct load_progress *progress) {
    if (progress->main) {
        load_progress_clear(progress);
        timer_stop(worker_timers(progress->main), &progress->timer);
    }
}
