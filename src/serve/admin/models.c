/* The models in /debug/state: active versions in full, idle ones by name. */
#include "serve/admin/routes.h"

#include "serve/repository/version_state.h"
#include "serve/scheduler/statistics/statistics.h"

enum {
    MAX_ACTIVE_MODELS = 200, /* versions with requests queued or running */
    MAX_IDLE_MODELS = 50,    /* names of idle versions */
};

struct models {
    struct buf *out;
    size_t n_active, n_idle;
};

static bool is_active(struct model_version *version) {
    uint64_t n_queued, n_running, n_instances;
    model_version_gauges(version, &n_queued, &n_running, &n_instances);
    return n_queued + n_running > 0;
}

static void print_active(void *user, const struct repository_entry *entry) {
    struct models *models = user;
    if (entry->version && is_active(entry->version) && models->n_active++ < MAX_ACTIVE_MODELS) {
        model_version_dump(entry->version, models->out);
    }
}

static void print_idle(void *user, const struct repository_entry *entry) {
    struct models *models = user;
    if (entry->version && is_active(entry->version)) {
        return;
    }
    if (models->n_idle++ < MAX_IDLE_MODELS) {
        buf_printf(models->out, "%s%.*s %llu%s%s",
                   models->n_idle > 1 ? ", " : "idle: ", STR_ARG(entry->model),
                   (unsigned long long)entry->number, entry->version ? "" : " ",
                   entry->version ? "" : repository_phase_name(entry->phase));
    }
}

void admin_models_print(void *context, struct buf *out) {
    struct repository *repository = context;
    struct models models = {.out = out};
    repository_visit(repository, print_active, &models);
    if (models.n_active > MAX_ACTIVE_MODELS) {
        buf_printf(out, "and %zu more models\n", models.n_active - MAX_ACTIVE_MODELS);
    }
    repository_visit(repository, print_idle, &models);
    if (models.n_idle > MAX_IDLE_MODELS) {
        buf_printf(out, " and %zu more", models.n_idle - MAX_IDLE_MODELS);
    }
    if (models.n_idle > 0) {
        buf_add_char(out, '\n');
    }
}
