/* The table of models: fixed by repository_new, filled by the loader, read on every request.
 *
 * Finding a version takes no lock. The table of names never changes after repository_new. What a
 * model serves is one pointer to a list that never changes once it is published; a reader takes a
 * reference on the version it picks. Versions are freed by repository_free only, when no worker
 * runs any more. A repository that replaces versions while it serves would publish a new list and
 * free the old one when each worker has passed through its loop once: no worker keeps the list
 * across that. */
#include "model/repository.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/num.h"
#include "model/repository_state.h"

/* ---- making ---------------------------------------------------------------------------------- */

static int compare_models(const void *a, const void *b) {
    const struct model *const *left = a, *const *right = b;
    return strcmp((*left)->name.ptr, (*right)->name.ptr);
}

static uint64_t hash_name(struct str name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < name.len; i++) {
        hash = (hash ^ (unsigned char)name.ptr[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Open addressing, at most half full. */
static enum status make_index(struct repository *repository, struct error *err) {
    size_t n_slots = 2;
    while (n_slots < 2 * repository->list.n) {
        n_slots *= 2;
    }
    repository->slots = arena_calloc(repository->arena, n_slots, sizeof(struct model *));
    if (!repository->slots) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
    }
    repository->slot_mask = n_slots - 1;
    for (size_t i = 0; i < repository->list.n; i++) {
        struct model *model = repository->list.items[i];
        size_t slot = (size_t)hash_name(model->name) & repository->slot_mask;
        while (repository->slots[slot]) {
            slot = (slot + 1) & repository->slot_mask;
        }
        repository->slots[slot] = model;
    }
    return ST_OK;
}

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
    if (st == ST_OK && repository->list.n > 0) {
        qsort(repository->list.items, repository->list.n, sizeof(struct model *), compare_models);
    }
    return st;
}

static void destroy(struct repository *repository) {
    struct arena *arena = repository->arena;
    backends_free(repository->list.backends);
    arena_free(arena);
}

enum status repository_new(const struct repository_options *options, struct repository **out,
                           struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct repository *repository = arena ? arena_calloc(arena, 1, sizeof(*repository)) : NULL;
    if (!repository) {
        arena_free(arena);
        return error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
    }
    repository->arena = arena;
    repository->list.arena = arena;
    repository->default_max_batch_size = options->default_max_batch_size;
    repository->max_queue_size = options->max_queue_size;
    repository->strict_readiness = options->strict_readiness;
    repository->opened = options->opened;
    repository->opened_cookie = options->opened_cookie;
    cpus_read(&repository->cpus);
    repository->list.backends =
        backends_new(options->backend_dir, options->builtin, options->n_builtin);
    enum status st = repository->list.backends
                         ? scan_all(repository, options, err)
                         : error_set(err, ST_NO_MEMORY, "out of memory for the backends");
    if (st == ST_OK) {
        st = make_index(repository, err);
    }
    if (st != ST_OK) {
        destroy(repository);
        return st;
    }
    atomic_init(&repository->n_unsettled, repository->list.n);
    *out = repository;
    return ST_OK;
}

/* ---- finding --------------------------------------------------------------------------------- */

static struct model *find_model(const struct repository *repository, struct str name) {
    size_t slot = (size_t)hash_name(name) & repository->slot_mask;
    while (repository->slots[slot] && !str_eq(repository->slots[slot]->name, name)) {
        slot = (slot + 1) & repository->slot_mask;
    }
    return repository->slots[slot];
}

/* Nothing is served of the model: why? */
static enum status not_ready(const struct model *model, struct error *err) {
    bool settled = atomic_load_explicit(&model->settled, memory_order_acquire);
    /* It may have been published since the caller looked: then it was still being loaded there. */
    if (!settled || atomic_load_explicit(&model->ready, memory_order_relaxed)) {
        return error_set(err, ST_NOT_READY, "model \"%.*s\" is still being loaded",
                         STR_ARG(model->name));
    }
    return error_set(err, ST_NOT_READY, "model \"%.*s\" failed to load: %s", STR_ARG(model->name),
                     model->error.text);
}

/* The version asked for is not among those served: was it tried, or is it unknown? */
static enum status no_version(const struct model *model, const struct ready_list *ready,
                              struct str text, uint64_t number, struct error *err) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (number > 0 && model->attempts[i].number == number) {
            return error_set(err, ST_NOT_READY,
                             "version %" PRIu64 " of model \"%.*s\" failed to load: %s", number,
                             STR_ARG(model->name), model->attempts[i].error.text);
        }
    }
    char served[SERVED_TEXT_BYTES];
    return error_set(err, ST_UNKNOWN_VERSION,
                     "model \"%.*s\" has no version \"%.*s\"; it serves %s", STR_ARG(model->name),
                     (int)(text.len > 40 ? 40 : text.len), text.ptr, ready_print(ready, served));
}

/* `text` with ptr NULL: the highest. */
static struct model_version *pick(const struct ready_list *ready, struct str text,
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
    struct model *model = find_model(repository, name);
    uint64_t number;
    if (!model) {
        char quoted[TENSOR_NAME_TEXT_BYTES];
        return error_set(err, ST_UNKNOWN_MODEL, "unknown model %s",
                         tensor_name_print(name, quoted));
    }
    const struct ready_list *ready = atomic_load_explicit(&model->ready, memory_order_acquire);
    if (!ready) {
        return not_ready(model, err);
    }
    struct model_version *version = pick(ready, version_text, &number);
    if (!version) {
        return no_version(model, ready, version_text, number, err);
    }
    if (atomic_load_explicit(&repository->stopping, memory_order_relaxed)) {
        return error_set(err, ST_NOT_READY, "the server is being stopped");
    }
    model_version_ref(version);
    *out = version;
    return ST_OK;
}

bool repository_is_ready(const struct repository *repository) {
    return atomic_load_explicit(&repository->n_unsettled, memory_order_acquire) == 0 &&
           !atomic_load_explicit(&repository->stopping, memory_order_relaxed) &&
           (!repository->strict_readiness ||
            atomic_load_explicit(&repository->n_failed, memory_order_relaxed) == 0);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void each_version(struct repository *repository, void (*act)(struct model_version *)) {
    for (size_t i = 0; i < repository->list.n; i++) {
        struct model *model = repository->list.items[i];
        for (size_t j = 0; j < model->n_attempts; j++) {
            if (model->attempts[j].version) {
                act(model->attempts[j].version);
            }
        }
    }
}

void repository_stop(struct repository *repository) {
    atomic_store_explicit(&repository->stopping, true, memory_order_relaxed);
    repository_load_join(repository);
    if (!repository->stopped) {
        repository->stopped = true;
        each_version(repository, version_refuse);
        each_version(repository, version_stop);
    }
}

void repository_free(struct repository *repository) {
    if (repository) {
        repository_stop(repository);
        each_version(repository, version_close);
        destroy(repository);
    }
}
