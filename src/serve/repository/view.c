/* What readers see of a model: which versions are served, and what became of the others. */
#include <stdlib.h>

#include "serve/repository/internal.h"

/* ---- lines ----------------------------------------------------------------------------------- */

static void add_line(struct view *view, const struct shelf *shelf, uint64_t number,
                     enum repository_phase phase, const char *reason) {
    view->lines[view->n_lines++] = (struct repository_entry){
        .model = shelf->name, .number = number, .phase = phase, .reason = reason};
}

static bool has_number(const struct model *model, uint64_t number) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].number == number) {
            return true;
        }
    }
    return false;
}

/* Those that are served, with why they could not be replaced, and those that could not be loaded
 * beside them. */
static void add_serving(struct view *view, const struct shelf *shelf) {
    const struct model *model = shelf->serving;
    const char *why = shelf->past ? shelf->past->error.text : "";
    for (size_t i = 0; i < model->n_attempts; i++) {
        const struct model_attempt *attempt = &model->attempts[i];
        if (attempt->version) {
            add_line(view, shelf, attempt->number, REPOSITORY_READY, why);
            view->lines[view->n_lines - 1].version = attempt->version;
        } else {
            add_line(view, shelf, attempt->number, REPOSITORY_FAILED, attempt->error.text);
        }
    }
}

/* Until a model has loaded, its loader writes to its attempts: only their numbers may be read. */
static void add_coming(struct view *view, const struct shelf *shelf) {
    const struct model *model = shelf->coming;
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (!shelf->serving || !has_number(shelf->serving, model->attempts[i].number)) {
            add_line(view, shelf, model->attempts[i].number, REPOSITORY_LOADING, "");
        }
    }
    if (model->n_attempts == 0 && !shelf->serving) {
        add_line(view, shelf, 0, REPOSITORY_LOADING, "");
    }
}

static void add_past(struct view *view, const struct shelf *shelf) {
    const struct model *model = shelf->past;
    enum repository_phase phase = model->unloaded ? REPOSITORY_UNLOADED : REPOSITORY_FAILED;
    for (size_t i = 0; i < model->n_attempts; i++) {
        const char *why = model->attempts[i].error.text;
        add_line(view, shelf, model->attempts[i].number, phase,
                 model->unloaded ? ""
                 : why[0]        ? why
                                 : model->error.text);
    }
    if (model->n_attempts == 0) {
        add_line(view, shelf, 0, phase, model->unloaded ? "" : model->error.text);
    }
}

static void add_leaving(struct view *view, const struct shelf *shelf, const struct model *model) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].version) {
            add_line(view, shelf, model->attempts[i].number, REPOSITORY_UNLOADING, "");
            struct repository_entry *line = &view->lines[view->n_lines - 1];
            line->version = model->attempts[i].version;
            line->replaced = shelf->serving != NULL;
        }
    }
}

/* ---- the view -------------------------------------------------------------------------------- */

static size_t attempts_of(const struct model *model) {
    return model ? model->n_attempts : 0;
}

static size_t most_lines(const struct repository *repository, const struct shelf *shelf) {
    size_t n = 1 + attempts_of(shelf->serving) + attempts_of(shelf->coming);
    n += attempts_of(shelf->past);
    for (const struct model *model = repository->retirement.leaving; model; model = model->next) {
        n += model->shelf == shelf ? model->n_attempts : 0;
    }
    return n;
}

/* What is said of a model of which nothing is served. */
static void set_phase(struct view *view, const struct shelf *shelf) {
    view->reason = "";
    view->phase = REPOSITORY_UNTOUCHED;
    if (shelf->coming) {
        view->phase = REPOSITORY_LOADING;
    } else if (shelf->past) {
        view->phase = shelf->past->unloaded ? REPOSITORY_UNLOADED : REPOSITORY_FAILED;
        view->reason = shelf->past->unloaded ? "" : shelf->past->error.text;
    }
}

static void fill(struct view *view, const struct repository *repository,
                 const struct shelf *shelf) {
    if (shelf->serving) {
        view->ready = shelf->serving->ready;
        add_serving(view, shelf);
    }
    if (shelf->coming) {
        add_coming(view, shelf);
    }
    for (const struct model *model = repository->retirement.leaving; model; model = model->next) {
        if (model->shelf == shelf) {
            add_leaving(view, shelf, model);
        }
    }
    bool nothing = view->n_lines == 0;
    if (shelf->past && !shelf->serving && !shelf->coming && (nothing || !shelf->past->unloaded)) {
        add_past(view, shelf);
    }
    set_phase(view, shelf);
    if (view->phase == REPOSITORY_UNTOUCHED && shelf->closing) {
        view->phase = REPOSITORY_UNLOADED;
    }
    if (view->phase == REPOSITORY_UNTOUCHED && view->n_lines > 0) {
        view->phase = view->lines[0].phase;
    }
    if (view->n_lines == 0) {
        add_line(view, shelf, 0, view->phase, "");
    }
}

bool shelf_show(struct repository *repository, struct shelf *shelf) {
    size_t n = most_lines(repository, shelf);
    struct view *view = calloc(1, sizeof(*view) + n * sizeof(view->lines[0]));
    if (!view) {
        return false;
    }
    fill(view, repository, shelf);
    const struct view *old = atomic_exchange_explicit(&shelf->view, view, memory_order_acq_rel);
    if (old) {
        retire(repository, (struct retired *)(void *)old);
    }
    return true;
}
