/* Progress of loads that take long: a line on the terminal that is redrawn every second, or a line
 * of the log every ten seconds where there is no terminal. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_LOAD_PROGRESS_H
#define SLUICE_PROGRAM_MODEL_SERVER_LOAD_PROGRESS_H

#include "core/base/buf.h"
#include "core/event/worker.h"
#include "serve/repository/repository.h"

enum {
    LOAD_PROGRESS_SECONDS = 1, /* between two looks, and how long a load is before it is shown */
    LOAD_PROGRESS_LOG_SECONDS = 10,
};

struct load_progress {
    struct repository *repository;
    struct worker *main;
    struct timer timer;
    bool on_terminal;
    bool shown;
    uint64_t logged_ns; /* the last line of the log; 0: none */
};

/* Begins to look, until load_progress_stop. `is_text`: the log's format. Thread: main, as for the
 * others. */
void load_progress_start(struct load_progress *progress, struct repository *repository,
                         struct worker *main, bool is_text);
/* Removes the line until the next look: before something else is printed to the terminal. */
void load_progress_clear(struct load_progress *progress);
void load_progress_stop(struct load_progress *progress);

/* The line of the terminal: "loading bert: 12 s (3 of 10 models are done)". */
void load_progress_print(struct buf *out, const struct repository_loads *loads, uint64_t now_ns);
/* Is a line of the log due? `logged_ns`: of the last one. */
bool load_progress_is_due(const struct repository_loads *loads, uint64_t logged_ns,
                          uint64_t now_ns);

#endif
