/* Published views: what workers read of a model, and visiting all of them. */
#include <stdlib.h>
#include <string.h>

#include "serve/repository/internal.h"

/* ---- entries --------------------------------------------------------------------------------- */

static void add_entry(struct published_view *view, const struct model_slot *model_slot,
                      uint64_t number, enum repository_phase phase, const char *reason) {
    view->entries[view->n_entries++] = (struct repository_entry){
        .model = model_slot->name, .number = number, .phase = phase, .reason = reason};
}

static bool has_number(const struct model *model, uint64_t number) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].number == number) {
            return true;
        }
    }
    return false;
}

/* The served versions, with the error of a failed replacement, and versions that failed to load. */
static void add_serving(struct published_view *view, const struct model_slot *model_slot) {
    const struct model *model = model_slot->serving;
    const char *why = model_slot->inactive ? model_slot->inactive->error.text : "";
    for (size_t i = 0; i < model->n_attempts; i++) {
        const struct model_attempt *attempt = &model->attempts[i];
        if (attempt->version && view->missing) {
            add_entry(view, model_slot, attempt->number, REPOSITORY_FAILED, view->missing);
        } else if (attempt->version) {
            add_entry(view, model_slot, attempt->number, REPOSITORY_READY, why);
            view->entries[view->n_entries - 1].version = attempt->version;
        } else {
            add_entry(view, model_slot, attempt->number, REPOSITORY_FAILED, attempt->error.text);
        }
    }
}

/* While a model is loading, its loader writes the attempts: only their numbers may be read. */
static void add_loading(struct published_view *view, const struct model_slot *model_slot) {
    const struct model *model = model_slot->loading;
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (!model_slot->serving || !has_number(model_slot->serving, model->attempts[i].number)) {
            add_entry(view, model_slot, model->attempts[i].number, REPOSITORY_LOADING, "");
        }
    }
    if (model->n_attempts == 0 && !model_slot->serving) {
        add_entry(view, model_slot, 0, REPOSITORY_LOADING, "");
    }
}

static void add_inactive(struct published_view *view, const struct model_slot *model_slot) {
    const struct model *model = model_slot->inactive;
    enum repository_phase phase = model->unloaded ? REPOSITORY_UNLOADED : REPOSITORY_FAILED;
    for (size_t i = 0; i < model->n_attempts; i++) {
        const char *why = model->attempts[i].error.text;
        add_entry(view, model_slot, model->attempts[i].number, phase,
                  model->unloaded ? ""
                  : why[0]        ? why
                                  : model->error.text);
    }
    if (model->n_attempts == 0) {
        add_entry(view, model_slot, 0, phase, model->unloaded ? "" : model->error.text);
    }
}

static void add_unloading(struct published_view *view, const struct model_slot *model_slot,
                          const struct model *model) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].version) {
            add_entry(view, model_slot, model->attempts[i].number, REPOSITORY_UNLOADING, "");
            struct repository_entry *entry = &view->entries[view->n_entries - 1];
            entry->version = model->attempts[i].version;
            entry->replaced = model_slot->serving != NULL;
        }
    }
}

/* ---- published view -------------------------------------------------------------------------- */

static size_t attempts_of(const struct model *model) {
    return model ? model->n_attempts : 0;
}

static void fill_view(struct published_view *view, const struct repository *repository,
                      const struct model_slot *model_slot) {
    if (model_slot->serving) {
        view->ready = model_slot->serving->ready;
        add_serving(view, model_slot);
    }
    if (model_slot->loading) {
        add_loading(view, model_slot);
    }
    for (const struct model *model = repository->retirement.unloading; model; model = model->next) {
        if (model->model_slot == model_slot) {
            add_unloading(view, model_slot, model);
        }
    }
    bool nothing = view->n_entries == 0;
    if (model_slot->inactive && !model_slot->serving && !model_slot->loading &&
        (nothing || !model_slot->inactive->unloaded)) {
        add_inactive(view, model_slot);
    }
    view->reason = "";
    view->phase = REPOSITORY_UNTOUCHED;
    if (model_slot->loading) {
        view->phase = REPOSITORY_LOADING;
    } else if (model_slot->inactive) {
        view->phase = model_slot->inactive->unloaded ? REPOSITORY_UNLOADED : REPOSITORY_FAILED;
        view->reason = model_slot->inactive->unloaded ? "" : model_slot->inactive->error.text;
    }
    if (view->phase == REPOSITORY_UNTOUCHED && model_slot->closing) {
        view->phase = REPOSITORY_UNLOADED;
    }
    if (view->phase == REPOSITORY_UNTOUCHED && view->n_entries > 0) {
        view->phase = view->entries[0].phase;
    }
    if (view->n_entries == 0 && model_origin_is_ambiguous(&model_slot->origin)) {
        add_entry(view, model_slot, 0, REPOSITORY_FAILED, MODEL_IS_AMBIGUOUS);
    } else if (view->n_entries == 0) {
        add_entry(view, model_slot, 0, view->phase, "");
    }
}

bool model_slot_publish(struct repository *repository, struct model_slot *model_slot) {
    size_t n = 1 + attempts_of(model_slot->serving) + attempts_of(model_slot->loading) +
               attempts_of(model_slot->inactive);
    for (const struct model *model = repository->retirement.unloading; model; model = model->next) {
        n += model->model_slot == model_slot ? model->n_attempts : 0;
    }
    struct error missing = {.status = ST_OK};
    size_t n_text = ensemble_check_members(repository, model_slot, &missing) != ST_OK
                        ? strlen(missing.text) + 1
                        : 0;
    struct str url = model_slot->registered_url;
    size_t n_url = url.len > 0 ? url.len + 1 : 0;
    struct published_view *view =
        calloc(1, sizeof(*view) + n * sizeof(view->entries[0]) + n_text + n_url);
    if (!view) {
        return false;
    }
    if (n_text > 0) {
        view->missing = memcpy(&view->entries[n], missing.text, n_text);
    }
    if (n_url > 0) {
        view->registered_url = memcpy((char *)&view->entries[n] + n_text, url.ptr, url.len);
    }
    fill_view(view, repository, model_slot);
    const struct published_view *old =
        atomic_exchange_explicit(&model_slot->view, view, memory_order_acq_rel);
    if (old) {
        retire_snapshot(repository, (struct retired_snapshot *)(void *)old);
    }
    ensembles_note_published(repository, model_slot);
    return true;
}

/* ---- visiting -------------------------------------------------------------------------------- */

const char *repository_phase_name(enum repository_phase phase) {
    static const char *const names[REPOSITORY_PHASES] = {
        [REPOSITORY_LOADING] = "loading",   [REPOSITORY_READY] = "ready",
        [REPOSITORY_FAILED] = "failed",     [REPOSITORY_UNLOADING] = "unloading",
        [REPOSITORY_UNLOADED] = "unloaded", [REPOSITORY_UNTOUCHED] = "untouched",
    };
    return names[phase];
}

void repository_visit(struct repository *repository,
                      void (*visit)(void *user, const struct repository_entry *entry), void *user) {
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        const struct model_slot *model_slot = name_table->model_slots[i];
        const struct published_view *view =
            atomic_load_explicit(&model_slot->view, memory_order_acquire);
        bool listed = atomic_load_explicit(&model_slot->listed, memory_order_relaxed);
        for (size_t j = 0; j < view->n_entries; j++) {
            struct repository_entry entry = view->entries[j];
            entry.listed = listed;
            entry.registered_url = view->registered_url;
            visit(user, &entry);
        }
    }
}

bool repository_has_more_than(const struct repository *repository, size_t n) {
    const struct name_table *name_table = repository_name_table(repository);
    size_t n_entries = 0;
    for (size_t i = 0; i < name_table->n && n_entries <= n; i++) {
        n_entries += atomic_load_explicit(&name_table->model_slots[i]->view, memory_order_acquire)
                         ->n_entries;
    }
    return n_entries > n;
}

/* ---- visiting ready versions ----------------------------------------------------------------- */

struct ready_visit {
    struct str name; /* empty: all */
    void (*visit)(void *user, struct model_version *version);
    void *user;
};

static void visit_if_ready(void *user, const struct repository_entry *entry) {
    const struct ready_visit *ready = user;
    if (entry->phase == REPOSITORY_READY &&
        (ready->name.len == 0 || str_eq(ready->name, entry->model))) {
        ready->visit(ready->user, entry->version);
    }
}

enum status repository_visit_ready(struct repository *repository, struct str name,
                                   struct str version_text,
                                   void (*visit)(void *user, struct model_version *version),
                                   void *user, struct error *err) {
    struct model_version *version = NULL;
    struct ready_visit ready = {name, visit, user};
    if (name.len > 0) {
        enum status st = repository_find(repository, name, version_text, &version, err);
        if (st != ST_OK) {
            return st;
        }
    }
    if (version_text.ptr && version) {
        visit(user, version);
    } else {
        repository_visit(repository, visit_if_ready, &ready);
    }
    if (version) {
        model_version_unref(version);
    }
    return ST_OK;
}
