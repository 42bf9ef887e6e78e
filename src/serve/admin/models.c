/* Versions that are doing something, one by one; the others by their names. */
#include "serve/admin/models.h"

#include "serve/repository/state.h"
#include "serve/scheduler/statistics/statistics.h"

enum {
    MODELS_MOST = 200, /* that are doing something */
    REST_MOST = 50,    /* names of others */
};

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

void admin_models_print(void *context, struct buf *out) {
    struct repository *repository = context;
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
