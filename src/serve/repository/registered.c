/* Directories that requests register while the server runs, each under the name of a model: as if
 * it had been given as NAME=PATH at the start, until the model is unloaded. A directory of several
 * models, of which one is an ensemble of the others, is that ensemble; the others have the names of
 * their directories, and go with it. */
#include <stdlib.h>

#include "core/base/quote.h"
#include "serve/repository/internal.h"

/* ---- what a directory has -------------------------------------------------------------------- */

/* Keeps what is a model's directory. */
static void keep_models(struct model_list *list) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (model_dir_is_model(list->items[i].path.ptr)) {
            list->items[n++] = list->items[i];
        }
    }
    list->n = n;
}

static bool is_step_of(struct str name, const struct model *model) {
    const struct model_ensemble *ensemble = &model->config.ensemble;
    for (size_t i = 0; i < ensemble->n_steps; i++) {
        if (str_eq(ensemble->steps[i].model, name)) {
            return true;
        }
    }
    return false;
}

/* Returns: whether `models[at]` is an ensemble, and no step of another one. */
static bool is_outermost(struct model *const *models, size_t n, size_t at) {
    bool is = models[at]->config.ensemble.n_steps > 0;
    for (size_t i = 0; is && i < n; i++) {
        is = i == at || !is_step_of(models[at]->name, models[i]);
    }
    return is;
}

/* *out: the one ensemble that has the others as its steps, by way of others or at once. */
static enum status find_outermost(struct model *const *models, size_t n, const char *path,
                                  size_t *out, struct error *err) {
    size_t n_outermost = 0;
    for (size_t i = 0; i < n; i++) {
        if (models[i]->error.status != ST_OK) {
            *err = models[i]->error;
            return error_prefix(err, "%.*s", STR_ARG(models[i]->name));
        }
        if (is_outermost(models, n, i)) {
            n_outermost++;
            *out = i;
        }
    }
    return n_outermost == 1
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG,
                           "%s has %zu models and %zu ensembles that are no step of another one; "
                           "expected one model, or one ensemble beside its steps",
                           path, n, n_outermost);
}

static enum status read_models(struct repository *repository, const struct model_list *list,
                               const atomic_bool *cancelled, struct model **models,
                               struct error *err) {
    for (size_t i = 0; i < list->n; i++) {
        models[i] = model_new(&list->items[i]);
        if (!models[i]) {
            return error_no_memory(err, "the models of a directory");
        }
        model_inspect(models[i], &repository->config_rules, cancelled);
    }
    return ST_OK;
}

/* Which of several models is the one that is registered. */
static enum status find_ensemble(struct repository *repository, const struct model_list *list,
                                 const char *path, const atomic_bool *cancelled, size_t *out,
                                 struct error *err) {
    struct model **models = arena_calloc(list->arena, list->n, sizeof(*models));
    if (!models) {
        return error_no_memory(err, "the models of a directory");
    }
    enum status st = read_models(repository, list, cancelled, models, err);
    if (st == ST_OK) {
        st = find_outermost(models, list->n, path, out, err);
    }
    for (size_t i = 0; i < list->n; i++) {
        model_free(models[i]);
    }
    return st;
}

/* What is registered: the model, whose origin is list.items[at], and those that go with it. */
struct registration {
    struct model_list list;
    size_t at;
    struct str url; /* the directory, or the one above it if it is the model's own */
};

static enum status find_models(struct repository *repository, struct str name, const char *path,
                               const atomic_bool *cancelled, struct registration *out,
                               struct error *err) {
    struct model_list *list = &out->list;
    struct model_root root = {.path = str_of(path)};
    enum status st = ST_OK;
    if (model_dir_exists(path) && !model_dir_is_model(path)) {
        st = scan_root(list, &root, err);
        keep_models(list);
    }
    if (st == ST_OK && list->n < 2) {
        list->n = 0;
        return scan_named(list, name, path, err);
    }
    if (st == ST_OK) {
        st = find_ensemble(repository, list, path, cancelled, &out->at, err);
    }
    for (size_t i = 0; st == ST_OK && i < list->n; i++) {
        list->items[i].pinned = true;
    }
    if (st == ST_OK) {
        list->items[out->at].name = name;
    }
    return st;
}

static struct str url_of(struct arena *arena, const char *path) {
    struct str url = str_of(path);
    if (model_dir_is_model(path)) {
        while (url.len > 1 && url.ptr[url.len - 1] != '/') {
            url.len--;
        }
        url.len -= url.len > 1;
    }
    return arena_dup(arena, url);
}

/* ---- registering ----------------------------------------------------------------------------- */

bool model_slot_is_registered(const struct model_slot *model_slot) {
    return model_slot->registered_with.len > 0 &&
           str_eq(model_slot->registered_with, model_slot->name);
}

/* Names are unique over all directories. */
static enum status check_free(const struct repository *repository,
                              const struct registration *registration, struct error *err) {
    for (size_t i = 0; i < registration->list.n; i++) {
        struct str name = registration->list.items[i].name;
        const struct model_slot *model_slot =
            model_slot_find(repository_name_table(repository), name);
        char quoted[QUOTED_NAME_BYTES];
        if (!model_slot || (model_slot->origin.path.len == 0 && !model_slot->serving)) {
            continue;
        }
        return error_set(err, i == registration->at ? ST_MODEL_EXISTS : ST_BAD_CONFIG,
                         model_slot->origin.path.len > 0 ? "model %s is there already: %.*s"
                                                         : "model %s is there already%.*s",
                         quote_name(name, quoted), STR_ARG(model_slot->origin.path));
    }
    return ST_OK;
}

static void forget_registration(struct model_slot *model_slot) {
    static const struct model_origin none = {.path = {"", 0}, .other = {"", 0}};
    (void)model_slot_set_origin(model_slot, &none); /* texts become empty: no memory is needed */
    atomic_store_explicit(&model_slot->listed, false, memory_order_relaxed);
    (void)model_slot_set_text(&model_slot->registered_with, STR(""));
    (void)model_slot_set_text(&model_slot->registered_url, STR(""));
}

/* Returns: false when out of memory. */
static bool set_registration(struct repository *repository, const struct registration *from,
                             size_t i, struct str with) {
    const struct model_origin *origin = &from->list.items[i];
    struct model_slot *model_slot = model_slot_get(repository, origin->name);
    return model_slot && model_slot_set_origin(model_slot, origin) &&
           model_slot_set_text(&model_slot->registered_with, with) &&
           (i != from->at || model_slot_set_text(&model_slot->registered_url, from->url));
}

static enum status set_all(struct repository *repository, const struct registration *registration,
                           struct str name, struct error *err) {
    enum status st = check_free(repository, registration, err);
    if (st != ST_OK) {
        return st;
    }
    for (size_t i = 0; i < registration->list.n; i++) {
        if (!set_registration(repository, registration, i, name)) {
            registered_remove(repository, name);
            return error_no_memory(err, "the table of models");
        }
    }
    return ST_OK;
}

enum status registered_add(struct repository *repository, struct str name, const char *path,
                           const atomic_bool *cancelled, bool *added, struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct registration registration = {
        .list = {.arena = arena,
                 .backends = repository->list.backends,
                 .backends_lock = &repository->backends_lock},
    };
    enum status st = arena ? find_models(repository, name, path, cancelled, &registration, err)
                           : error_no_memory(err, "the model");
    if (st == ST_OK) {
        registration.url = url_of(arena, path);
        st = registration.url.ptr ? ST_OK : error_no_memory(err, "the model");
    }
    lock_acquire(&repository->lock);
    if (st == ST_OK && atomic_load_explicit(cancelled, memory_order_relaxed)) {
        st = error_set(err, ST_NOT_READY, "the load was cancelled");
    } else if (st == ST_OK) {
        st = set_all(repository, &registration, name, err);
        *added = st == ST_OK;
    }
    lock_release(&repository->lock);
    arena_free(arena);
    return st;
}

/* Its name is not remembered as that of an unloaded model. */
static void forget(struct repository *repository, struct model_slot *model_slot) {
    struct model *served = model_slot->serving;
    forget_registration(model_slot);
    unload_model_slot(repository, model_slot);
    if (served && model_slot->serving != served) {
        served->unloaded = false;
    }
    (void)model_slot_publish(repository, model_slot); /* else the old view stays */
}

void registered_remove(struct repository *repository, struct str name) {
    lock_assert_held(&repository->lock);
    const struct name_table *name_table = repository_name_table(repository);
    struct model_slot *model_slot = model_slot_find(name_table, name);
    if (model_slot && model_slot_is_registered(model_slot)) {
        forget(repository, model_slot);
    }
    for (size_t i = 0; i < name_table->n; i++) {
        struct model_slot *member = name_table->model_slots[i];
        if (str_eq(member->registered_with, name)) {
            changes_cancel(repository, member->name);
            forget(repository, member);
        }
    }
}

/* ---- looking them up ------------------------------------------------------------------------- */

struct str repository_registered_url(struct repository *repository, struct str name) {
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    const struct published_view *view =
        model_slot ? atomic_load_explicit(&model_slot->view, memory_order_acquire) : NULL;
    return view && view->registered_url ? str_of(view->registered_url) : (struct str){NULL, 0};
}
