/* The models of the start: where they are looked for, the scan that finds them, and their way into
 * the table of names. A scan takes as long as the volume does, so that the server runs it on a
 * loading thread after its listeners are open (changes.c); no model is known before it has
 * ended. */
#include <string.h>

#include "core/must/must.h"
#include "serve/repository/internal.h"

/* ---- options --------------------------------------------------------------------------------- */

static const char *const *copy_texts(struct arena *arena, const char *const *texts, size_t n) {
    const char **copies = arena_calloc(arena, n + 1, sizeof(*copies));
    for (size_t i = 0; i < n; i++) {
        copies[i] = arena_dup(arena, str_of(texts[i])).ptr;
    }
    return copies;
}

static enum status check_load_models(const struct start *start, enum repository_control control,
                                     struct error *err) {
    if (control != REPOSITORY_EXPLICIT && start->n_load_models > 0) {
        return error_set(err, ST_BAD_CONFIG, "--load-model needs --model-control-mode explicit");
    }
    for (size_t i = 0; i < start->n_load_models && start->n_load_models > 1; i++) {
        if (strcmp(start->load_models[i], "*") == 0) {
            return error_set(err, ST_BAD_CONFIG, "--load-model * stands alone: it is all models");
        }
    }
    return ST_OK;
}

enum status start_init(struct repository *repository, const struct repository_options *options,
                       struct error *err) {
    struct start *start = &repository->start;
    struct arena *arena = repository->arena;
    start->n_paths = options->n_paths;
    start->path_params = options->path_params;
    start->n_model_repositories = options->n_model_repositories;
    start->n_load_models = options->n_load_models;
    struct model_list none = {.n = 0};
    struct name_table *empty = must_have(name_table_make(&none), "the table of models");
    atomic_store(&repository->name_table, empty);
    atomic_store(&repository->n_start_pending, 1); /* the scan */
    start->paths = copy_texts(arena, options->paths, options->n_paths);
    start->model_repositories =
        copy_texts(arena, options->model_repositories, options->n_model_repositories);
    start->load_models = copy_texts(arena, options->load_models, options->n_load_models);
    return check_load_models(start, options->model_control_mode, err);
}

/* ---- scan ------------------------------------------------------------------------------------ */

static enum status scan_all(const struct start *start, struct model_list *list, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < start->n_paths && st == ST_OK; i++) {
        st = scan_path(list, start->paths[i], start->path_params ? &start->path_params[i] : NULL,
                       err);
    }
    for (size_t i = 0; i < start->n_model_repositories && st == ST_OK; i++) {
        st = scan_repository(list, start->model_repositories[i], err);
    }
    return st;
}

enum status start_scan(struct repository *repository, struct start_found *found,
                       struct error *err) {
    struct arena *arena = must_arena_new("looking for models");
    *found = (struct start_found){.list = {.arena = arena,
                                           .backends = repository->list.backends,
                                           .backends_lock = &repository->backends_lock}};
    enum status st = scan_all(&repository->start, &found->list, err);
    size_t n_roots = found->list.n_roots;
    found->roots = arena_calloc(arena, n_roots + 1, sizeof(*found->roots));
    for (size_t i = 0; st == ST_OK && i < n_roots; i++) {
        found->roots[i].device = root_device(found->list.roots[i].path.ptr);
    }
    return st;
}

/* ---- what was found -------------------------------------------------------------------------- */

static bool is_wanted(const struct repository *repository, struct str name) {
    const struct start *start = &repository->start;
    bool wanted = repository->model_control_mode != REPOSITORY_EXPLICIT;
    for (size_t i = 0; i < start->n_load_models && !wanted; i++) {
        wanted = str_is(name, start->load_models[i]) || strcmp(start->load_models[i], "*") == 0;
    }
    return wanted;
}

/* Checks that the models to be loaded at start exist. */
static enum status check_wanted(const struct start *start, const struct name_table *name_table,
                                struct error *err) {
    for (size_t i = 0; i < start->n_load_models; i++) {
        const char *name = start->load_models[i];
        if (strcmp(name, "*") != 0 && !model_slot_find(name_table, str_of(name))) {
            return error_set(err, ST_BAD_CONFIG, "--load-model %s: there is no such model", name);
        }
    }
    return ST_OK;
}

/* Makes the models to be loaded, whose files are read when they are, and the views of all. Returns:
 * how many are to be loaded. */
static size_t prepare_models(struct repository *repository, const struct name_table *name_table) {
    size_t n_wanted = 0;
    for (size_t i = 0; i < name_table->n; i++) {
        struct model_slot *model_slot = name_table->model_slots[i];
        if (is_wanted(repository, model_slot->name)) {
            struct model_origin origin = model_slot->origin;
            origin.name = model_slot->name;
            model_slot->loading = must_have(model_new(&origin), "a model");
            model_slot->load_at_start = true;
            n_wanted++;
        }
        if (!model_slot_publish(repository, model_slot)) {
            must_end("the table of models");
        }
    }
    return n_wanted;
}

enum status start_publish(struct repository *repository, struct start_found *found,
                          struct error *err) {
    lock_assert_held(&repository->lock);
    const struct name_table *old = repository_name_table(repository);
    struct name_table *name_table = must_have(name_table_make(&found->list), "the table of models");
    enum status st = check_wanted(&repository->start, name_table, err);
    if (st != ST_OK) {
        name_table_free(name_table);
        return st;
    }
    size_t n_wanted = prepare_models(repository, name_table);
    repository->list = found->list;
    repository->roots = found->roots;
    repository->n_start = n_wanted;
    atomic_fetch_add(&repository->n_start_pending, n_wanted);
    found->list.arena = NULL;
    atomic_store_explicit(&repository->name_table, name_table, memory_order_release);
    atomic_store_explicit(&repository->scanned, true, memory_order_release);
    retire_snapshot(repository, (struct retired_snapshot *)(void *)old);
    return ST_OK;
}

void start_fail(struct repository *repository, const struct error *why) {
    lock_assert_held(&repository->lock);
    repository->start.error = *why;
    atomic_store_explicit(&repository->scanned, false, memory_order_release);
    atomic_store(&repository->n_start_pending, 1); /* what was found is not loaded */
}

void start_discard(struct start_found *found) {
    arena_free(found->list.arena);
}

/* ---- on the calling thread ------------------------------------------------------------------- */

enum status repository_scan(struct repository *repository, struct error *err) {
    struct start_found found;
    enum status st = start_scan(repository, &found, err);
    if (st == ST_OK) {
        lock_acquire(&repository->lock);
        st = start_publish(repository, &found, err);
        lock_release(&repository->lock);
    }
    start_discard(&found);
    if (st == ST_OK) {
        atomic_fetch_sub_explicit(&repository->n_start_pending, 1, memory_order_release);
    }
    return st;
}
