/* The table of models, read on every request; who changes it is load.c.
 *
 * Finding a version takes no lock. The table of names and what is known of each name are pointers
 * to what never changes once it is published; a reader takes a reference on the version it picks
 * and keeps nothing else across its worker's turn. That is what retire.c counts on. */
#include "serve/repository/repository.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/num.h"
#include "serve/repository/internal.h"

/* ---- making ---------------------------------------------------------------------------------- */

static enum status scan_all(struct repository *repository, const struct repository_options *options,
                            struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < options->n_paths && st == ST_OK; i++) {
        const struct repository_params *params =
            options->path_params ? &options->path_params[i] : NULL;
        st = scan_path(&repository->list, options->paths[i], params, err);
    }
    for (size_t i = 0; i < options->n_directories && st == ST_OK; i++) {
        st = scan_repository(&repository->list, options->directories[i], err);
    }
    return st;
}

static bool is_wanted(const struct repository_options *options, struct str name) {
    bool wanted = options->control != REPOSITORY_EXPLICIT;
    for (size_t i = 0; i < options->n_load && !wanted; i++) {
        wanted = str_is(name, options->load[i]) || strcmp(options->load[i], "*") == 0;
    }
    return wanted;
}

/* Names to be loaded at the start are there. */
static enum status check_wanted(struct repository *repository,
                                const struct repository_options *options, struct error *err) {
    if (options->control != REPOSITORY_EXPLICIT) {
        return options->n_load == 0 ? ST_OK
                                    : error_set(err, ST_BAD_CONFIG,
                                                "--load-model needs --model-control-mode explicit");
    }
    for (size_t i = 0; i < options->n_load; i++) {
        bool all = strcmp(options->load[i], "*") == 0;
        if (all && options->n_load > 1) {
            return error_set(err, ST_BAD_CONFIG, "--load-model * stands alone: it is all models");
        }
        if (!all && !model_slot_find(repository_name_table(repository), str_of(options->load[i]))) {
            return error_set(err, ST_BAD_CONFIG, "--load-model %s: there is no such model",
                             options->load[i]);
        }
    }
    return ST_OK;
}

/* Reads the configurations of what is to be loaded, and shows all names. */
static enum status prepare_models(struct repository *repository,
                                  const struct repository_options *options, struct error *err) {
    const struct name_table *name_table = repository_name_table(repository);
    enum status st = check_wanted(repository, options, err);
    lock_acquire(&repository->lock);
    for (size_t i = 0; i < name_table->n && st == ST_OK; i++) {
        struct model_slot *model_slot = name_table->model_slots[i];
        if (is_wanted(options, model_slot->name)) {
            model_slot->loading = load_prepare(&model_slot->origin, NULL, err);
            model_slot->load_at_start = true;
            st = model_slot->loading ? ST_OK : err->status;
            atomic_fetch_add(&repository->n_start_pending, 1);
        }
        if (st == ST_OK && !model_slot_publish(repository, model_slot)) {
            st = error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
        }
    }
    lock_release(&repository->lock);
    return st;
}

static void repository_destroy(struct repository *repository) {
    struct arena *arena = repository->arena;
    retirement_free(repository);
    name_table_free(repository);
    response_cache_free(repository->cache);
    backends_free(repository->list.backends);
    lock_cond_fini(&repository->changes.work);
    lock_cond_fini(&repository->poll);
    lock_fini(&repository->backends_lock);
    lock_fini(&repository->lock);
    arena_free(arena);
}

static void repository_init(struct repository *repository, struct arena *arena,
                            const struct repository_options *options) {
    repository->arena = arena;
    repository->list.arena = arena;
    repository->default_max_batch_size = options->default_max_batch_size;
    repository->max_queue_size = options->max_queue_size;
    repository->strict_readiness = options->strict_readiness;
    repository->on_version_opened = options->on_version_opened;
    repository->on_version_opened_user = options->on_version_opened_user;
    repository->on_state_changed = options->on_state_changed;
    repository->on_state_changed_user = options->on_state_changed_user;
    repository->control = options->control;
    repository->poll_ns = options->poll_ns;
    repository->changes.max_threads = options->n_loads > 0 ? options->n_loads : 1;
    assert(repository->changes.max_threads <= REPOSITORY_MAX_LOADS);
    cpus_read(&repository->cpus);
    lock_init(&repository->lock);
    lock_init(&repository->backends_lock);
    lock_cond_init(&repository->changes.work);
    lock_cond_init(&repository->poll);
}

enum status repository_new(const struct repository_options *options, struct repository **out,
                           struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct repository *repository = arena ? arena_calloc(arena, 1, sizeof(*repository)) : NULL;
    if (!repository) {
        arena_free(arena);
        return error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
    }
    repository_init(repository, arena, options);
    enum status st = retirement_init(repository, options, err);
    if (st == ST_OK && options->cache_size > 0) {
        st = response_cache_new(options->cache_size, &repository->cache, err);
    }
    repository->list.backends =
        backends_new(options->backend_dir, options->builtin, options->n_builtin);
    if (st == ST_OK) {
        st = repository->list.backends
                 ? scan_all(repository, options, err)
                 : error_set(err, ST_NO_MEMORY, "out of memory for the backends");
    }
    if (st == ST_OK) {
        st = name_table_init(repository, err);
    }
    if (st == ST_OK) {
        st = prepare_models(repository, options, err);
    }
    if (st != ST_OK) {
        retirement_stop(repository);
        repository_destroy(repository);
        return st;
    }
    *out = repository;
    return ST_OK;
}

/* ---- finding --------------------------------------------------------------------------------- */

static enum status error_unknown_model(struct str name, const char *what, struct error *err) {
    char quoted[TENSOR_NAME_TEXT_BYTES];
    return error_set(err, ST_UNKNOWN_MODEL, what, tensor_name_print(name, quoted));
}

static enum status error_not_served(struct str name, const struct published_view *view,
                                    struct error *err) {
    switch (view->phase) {
    case REPOSITORY_LOADING:
        return error_set(err, ST_NOT_READY, "model \"%.*s\" is still being loaded", STR_ARG(name));
    case REPOSITORY_FAILED:
        return error_set(err, ST_NOT_READY, "model \"%.*s\" failed to load: %s", STR_ARG(name),
                         view->reason);
    case REPOSITORY_UNLOADED:
    case REPOSITORY_UNLOADING:
        return error_unknown_model(name, "model %s is not loaded", err);
    case REPOSITORY_READY: /* not of one that serves nothing */
    case REPOSITORY_UNTOUCHED:
    case REPOSITORY_PHASES:
        break;
    }
    return error_unknown_model(name, "unknown model %s", err);
}

/* The version asked for is not among those served: was it tried, or is it unknown? */
static enum status error_unknown_version(struct str name, const struct published_view *view,
                                         struct str text, uint64_t number, struct error *err) {
    for (size_t i = 0; i < view->n_entries; i++) {
        const struct repository_entry *entry = &view->entries[i];
        if (number > 0 && entry->number == number && entry->phase == REPOSITORY_FAILED) {
            return error_set(err, ST_NOT_READY,
                             "version %" PRIu64 " of model \"%.*s\" failed to load: %s", number,
                             STR_ARG(name), entry->reason);
        }
    }
    char served[SERVED_TEXT_BYTES];
    return error_set(err, ST_UNKNOWN_VERSION,
                     "model \"%.*s\" has no version \"%.*s\"; it serves %s", STR_ARG(name),
                     (int)(text.len > 40 ? 40 : text.len), text.ptr,
                     ready_list_print(view->ready, served));
}

/* `text` with ptr NULL: the highest. */
static struct model_version *pick_version(const struct ready_list *ready, struct str text,
                                          uint64_t *number) {
    *number = 0;
    if (!text.ptr) {
        return ready->versions[ready->n - 1];
    }
    if (text.len > 0 && text.ptr[0] != '0' && num_parse_u64(text, number)) {
        for (size_t i = 0; i < ready->n; i++) {
            if (ready->numbers[i] == *number) {
                return ready->versions[i];
            }
        }
    }
    return NULL;
}

enum status repository_find(struct repository *repository, struct str name, struct str version_text,
                            struct model_version **out, struct error *err) {
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    uint64_t number;
    if (!model_slot) {
        return error_unknown_model(name, "unknown model %s", err);
    }
    const struct published_view *view =
        atomic_load_explicit(&model_slot->view, memory_order_acquire);
    if (!view->ready) {
        return error_not_served(model_slot->name, view, err);
    }
    struct model_version *version = pick_version(view->ready, version_text, &number);
    if (!version) {
        return error_unknown_version(model_slot->name, view, version_text, number, err);
    }
    if (atomic_load_explicit(&repository->stopping, memory_order_relaxed)) {
        return error_set(err, ST_NOT_READY, "the server is being stopped");
    }
    model_version_ref(version);
    *out = version;
    return ST_OK;
}

bool repository_is_ready(const struct repository *repository) {
    return atomic_load_explicit(&repository->n_start_pending, memory_order_acquire) == 0 &&
           !atomic_load_explicit(&repository->stopping, memory_order_relaxed) &&
           (!repository->strict_readiness ||
            atomic_load_explicit(&repository->n_failed, memory_order_relaxed) == 0);
}

bool repository_is_busy(const struct repository *repository) {
    return atomic_load_explicit(&repository->n_start_pending, memory_order_acquire) > 0 ||
           atomic_load_explicit(&repository->n_busy, memory_order_acquire) > 0;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void for_each_version(const struct model *model, void (*act)(struct model_version *)) {
    for (size_t i = 0; model && i < model->n_attempts; i++) {
        if (model->attempts[i].version) {
            act(model->attempts[i].version);
        }
    }
}

static void for_each_served(struct repository *repository, void (*act)(struct model_version *)) {
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        for_each_version(name_table->model_slots[i]->serving, act);
    }
}

void repository_drain(struct repository *repository) {
    atomic_store_explicit(&repository->draining, true, memory_order_seq_cst);
    changes_refuse(repository);
    lock_acquire(&repository->lock);
    lock_cond_broadcast(&repository->poll);
    lock_release(&repository->lock);
}

void repository_stop(struct repository *repository) {
    atomic_store_explicit(&repository->stopping, true, memory_order_relaxed);
    repository_drain(repository);
    changes_stop(repository);
    repository_load_join(repository);
    if (!repository->stopped) {
        repository->stopped = true;
        retirement_stop(repository);
        for_each_served(repository, version_reject_calls);
        for_each_served(repository, version_stop);
    }
}

void repository_free(struct repository *repository) {
    if (repository) {
        repository_stop(repository);
        for_each_served(repository, version_close);
        repository_destroy(repository);
    }
}
