/* Loading: model by model in the order of names, version by version. What fails is kept with its
 * reason and does not stop the others. A model is published when all its versions have been tried,
 * so that "the highest" does not change under a client while it loads. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "loop/clock.h"
#include "model/repository_state.h"

const char *ready_print(const struct ready_list *ready, char out[SERVED_TEXT_BYTES]) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ready->n && len < SERVED_TEXT_BYTES - 1; i++) {
        bool last_room = len > SERVED_TEXT_BYTES - 28;
        int wrote = last_room ? snprintf(out + len, SERVED_TEXT_BYTES - len, ", ...")
                              : snprintf(out + len, SERVED_TEXT_BYTES - len, "%s%" PRIu64,
                                         i > 0 ? ", " : "", ready->numbers[i]);
        len = last_room ? SERVED_TEXT_BYTES : len + (size_t)wrote;
    }
    return out;
}

static enum status load_version(struct repository *repository, const struct model *model,
                                struct model_attempt *attempt) {
    struct version_options options = {
        .config = &model->config,
        .name = model->name,
        .version = attempt->number,
        .directory = model->directory,
        .default_max_batch_size = repository->default_max_batch_size,
        .max_queue_size = repository->max_queue_size,
        .usable_cpus = repository->cpus.usable,
        .spinning_hurts = repository->cpus.quota_below_affinity,
        .opened = repository->opened,
        .opened_cookie = repository->opened_cookie,
    };
    enum status st =
        model_locate(repository->arena, repository->list.backends, model, attempt->number,
                     &options.backend, &options.path, &attempt->error);
    struct model_config config = model->config;
    if (st == ST_OK) {
        config.backend = str_of(options.backend->name);
        options.config = &config;
        st = version_open(&options, &attempt->version, &attempt->error);
    }
    return st;
}

static void try_version(struct repository *repository, struct model *model,
                        struct model_attempt *attempt) {
    uint64_t began_ns = clock_now_ns();
    enum status st = load_version(repository, model, attempt);
    if (st != ST_OK) {
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", model->name),
                  LOG_U64("version", attempt->number), LOG_TEXT_OF("reason", attempt->error.text));
        return;
    }
    struct model_version *version = attempt->version;
    version->statistics.loaded_ns = clock_now_ns() - began_ns;
    log_event(LOG_INFO, "model loaded", LOG_STR("model", model->name),
              LOG_U64("version", attempt->number), LOG_TEXT_OF("backend", version->backend->name),
              LOG_U64("max_batch_size", version->config.max_batch_size),
              LOG_U64("instances", version->n_instances), LOG_U64("threads", version->n_threads),
              LOG_F64("seconds", (double)version->statistics.loaded_ns / 1e9));
}

/* The list of what is served; NULL when nothing is, or memory is out. */
static struct ready_list *make_ready(struct arena *arena, const struct model *model) {
    struct ready_list *ready = arena_calloc(arena, 1, sizeof(*ready));
    if (!ready) {
        return NULL;
    }
    ready->versions = arena_calloc(arena, model->n_attempts, sizeof(struct model_version *));
    ready->numbers = arena_calloc(arena, model->n_attempts, sizeof(*ready->numbers));
    if (!ready->versions || !ready->numbers) {
        return NULL;
    }
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].version) {
            ready->versions[ready->n] = model->attempts[i].version;
            ready->numbers[ready->n++] = model->attempts[i].number;
        }
    }
    for (size_t i = 0; i < ready->n; i++) {
        ready->versions[i]->siblings = ready->numbers;
        ready->versions[i]->n_siblings = ready->n;
    }
    return ready->n > 0 ? ready : NULL;
}

/* Keeps the first failure as the model's. */
static void keep_failure(struct model *model) {
    for (size_t i = 0; i < model->n_attempts && model->error.status == ST_OK; i++) {
        if (!model->attempts[i].version) {
            model->error = model->attempts[i].error;
            error_prefix(&model->error, "version %" PRIu64, model->attempts[i].number);
        }
    }
}

static void settle(struct repository *repository, struct model *model) {
    struct ready_list *ready = make_ready(repository->arena, model);
    keep_failure(model);
    if (!ready && model->error.status == ST_OK) {
        error_set(&model->error, ST_NO_MEMORY, "out of memory for the table of versions");
    }
    if (model->error.status != ST_OK) {
        atomic_fetch_add_explicit(&repository->n_failed, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&model->ready, ready, memory_order_release);
    atomic_store_explicit(&model->settled, true, memory_order_release);
    atomic_fetch_sub_explicit(&repository->n_unsettled, 1, memory_order_release);
}

static void load_model(struct repository *repository, struct model *model) {
    bool stopping = atomic_load_explicit(&repository->stopping, memory_order_relaxed);
    if (stopping && model->error.status == ST_OK) {
        error_set(&model->error, ST_NOT_READY, "the server is being stopped");
    } else if (model->error.status != ST_OK) {
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", model->name),
                  LOG_TEXT_OF("reason", model->error.text));
    } else {
        for (size_t i = 0; i < model->n_attempts; i++) {
            try_version(repository, model, &model->attempts[i]);
        }
    }
    settle(repository, model);
}

static void load_all(struct repository *repository) {
    for (size_t i = 0; i < repository->list.n; i++) {
        load_model(repository, repository->list.items[i]);
    }
}

enum status repository_load(struct repository *repository, struct error *err) {
    load_all(repository);
    size_t n_failed = atomic_load_explicit(&repository->n_failed, memory_order_relaxed);
    if (n_failed == 0) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_MODEL, "%zu of %zu models could not be loaded", n_failed,
                     repository->list.n);
}

static void loader_main(void *arg) {
    struct repository *repository = arg;
    load_all(repository);
    if (repository->loaded) {
        repository->loaded(repository->loaded_cookie);
    }
}

enum status repository_load_start(struct repository *repository, void (*done)(void *cookie),
                                  void *cookie, struct error *err) {
    repository->loaded = done;
    repository->loaded_cookie = cookie;
    int rc = uv_thread_create(&repository->loader, loader_main, repository);
    if (rc != 0) {
        return error_set(err, ST_IO, "no thread to load models: %s", uv_strerror(rc));
    }
    repository->has_loader = true;
    return ST_OK;
}

void repository_load_join(struct repository *repository) {
    if (repository->has_loader) {
        uv_thread_join(&repository->loader);
        repository->has_loader = false;
    }
}
