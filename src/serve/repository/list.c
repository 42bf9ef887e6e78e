/* The list of everything that was to be served, for those who show it. */
#include "serve/repository/internal.h"

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
            visit(user, &entry);
        }
    }
}

/* ---- those that are ready -------------------------------------------------------------------- */

struct ready_visit {
    struct str name; /* empty: any */
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
