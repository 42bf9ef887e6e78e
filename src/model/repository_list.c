/* The list of everything that was to be served, for those who show it. */
#include "model/repository_state.h"

const char *repository_phase_name(enum repository_phase phase) {
    static const char *const names[REPOSITORY_PHASES] = {
        [REPOSITORY_LOADING] = "loading",
        [REPOSITORY_READY] = "ready",
        [REPOSITORY_FAILED] = "failed",
    };
    return names[phase];
}

/* Until a model is settled its loader writes to its attempts: only their numbers may be read. */
static struct repository_entry entry_of(const struct model *model, bool settled, size_t i) {
    const struct model_attempt *attempt = &model->attempts[i];
    struct repository_entry entry = {.model = model->name, .number = attempt->number, .reason = ""};
    if (!settled) {
        entry.phase = REPOSITORY_LOADING;
    } else if (attempt->version && atomic_load_explicit(&model->ready, memory_order_acquire)) {
        entry.phase = REPOSITORY_READY;
        entry.version = attempt->version;
    } else {
        entry.phase = REPOSITORY_FAILED;
        entry.reason = attempt->version ? model->error.text : attempt->error.text;
    }
    return entry;
}

static void visit_model(const struct model *model,
                        void (*visit)(void *cookie, const struct repository_entry *entry),
                        void *cookie) {
    bool settled = atomic_load_explicit(&model->settled, memory_order_acquire);
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct repository_entry entry = entry_of(model, settled, i);
        visit(cookie, &entry);
    }
    if (model->n_attempts == 0) {
        struct repository_entry entry = {
            .model = model->name,
            .phase = settled ? REPOSITORY_FAILED : REPOSITORY_LOADING,
            .reason = settled ? model->error.text : "",
        };
        visit(cookie, &entry);
    }
}

void repository_visit(struct repository *repository,
                      void (*visit)(void *cookie, const struct repository_entry *entry),
                      void *cookie) {
    for (size_t i = 0; i < repository->list.n; i++) {
        visit_model(repository->list.items[i], visit, cookie);
    }
}

/* ---- those that are ready -------------------------------------------------------------------- */

struct ready_visit {
    struct str name; /* empty: any */
    void (*visit)(void *cookie, struct model_version *version);
    void *cookie;
};

static void visit_if_ready(void *cookie, const struct repository_entry *entry) {
    const struct ready_visit *ready = cookie;
    if (entry->version && (ready->name.len == 0 || str_eq(ready->name, entry->model))) {
        ready->visit(ready->cookie, entry->version);
    }
}

enum status repository_visit_ready(struct repository *repository, struct str name,
                                   struct str version_text,
                                   void (*visit)(void *cookie, struct model_version *version),
                                   void *cookie, struct error *err) {
    struct model_version *version = NULL;
    struct ready_visit ready = {name, visit, cookie};
    if (name.len > 0) {
        enum status st = repository_find(repository, name, version_text, &version, err);
        if (st != ST_OK) {
            return st;
        }
    }
    if (version_text.ptr && version) {
        visit(cookie, version);
    } else {
        repository_visit(repository, visit_if_ready, &ready);
    }
    if (version) {
        model_version_unref(version);
    }
    return ST_OK;
}
