/* Ensembles in the repository. An ensemble is loaded after its members, and fits them then. It
 * stays loaded when a member is unloaded, replaced or fails: it is not ready, and says why, until
 * its members fit again. That is looked at whenever a member's slot is published, under the same
 * lock, so that no request finds an ensemble that is ready without its members. */
#include <string.h>

#include "core/base/log.h"
#include "core/base/quote.h"
#include "core/base/suggest.h"
#include "serve/repository/internal.h"

static bool is_ensemble(const struct model *model) {
    return model && model->config.ensemble.n_steps > 0;
}

/* ---- members --------------------------------------------------------------------------------- */

/* What a search through ensembles inside of ensembles may look at. */
enum { MAX_DEPTH = 15 /* INNER_MAX_DEPTH less the outermost */, MAX_LOOKS = 100000 };

struct finding {
    const struct repository *repository;
    struct str name; /* of the ensemble */
    size_t n_looks;
};

static enum status fail_unknown(const struct finding *finding, struct str name, struct error *err) {
    const struct name_table *table = repository_name_table(finding->repository);
    struct suggestion suggestion = {0};
    char quoted[QUOTED_NAME_BYTES], hint[SUGGEST_HINT_BYTES];
    for (size_t i = 0; i < table->n; i++) {
        suggest_consider(&suggestion, name, table->model_slots[i]->name);
    }
    return error_set(err, ST_BAD_MODEL, "unknown model %s%s", quote_name(name, quoted),
                     suggest_hint(&suggestion, hint));
}

/* Returns: NULL with the reason when it is not served. */
static const struct model_version *find_version(const struct finding *finding,
                                                const struct ensemble_step *step,
                                                struct error *err) {
    const struct model_slot *model_slot =
        model_slot_find(repository_name_table(finding->repository), step->model);
    struct model_version *version = NULL;
    enum status st = model_slot ? model_slot_pick(model_slot, step->version, &version, err)
                                : fail_unknown(finding, step->model, err);
    if (st != ST_OK) {
        err->status = ST_BAD_MODEL; /* to load it again at once would not help */
        return NULL;
    }
    return version;
}

/* Fails where the ensemble is a member of itself, by way of others. */
static enum status check_circle(struct finding *finding, const struct model_version *version,
                                unsigned depth, struct error *err) {
    const struct model_ensemble *ensemble = &version->config.ensemble;
    enum status st = ST_OK;
    for (size_t i = 0; i < ensemble->n_steps && st == ST_OK; i++) {
        char name[QUOTED_NAME_BYTES];
        struct error ignored;
        if (str_eq(ensemble->steps[i].model, finding->name)) {
            return error_set(err, ST_BAD_MODEL, "ensemble %s has this one as a member: a circle",
                             quote_name(version->plan.spec.name, name));
        }
        if (depth >= MAX_DEPTH || finding->n_looks++ >= MAX_LOOKS) {
            return error_set(err, ST_BAD_MODEL,
                             "ensembles are inside of each other more than %d times", MAX_DEPTH);
        }
        const struct model_version *member = find_version(finding, &ensemble->steps[i], &ignored);
        if (member) {
            st = check_circle(finding, member, depth + 1, err);
        }
    }
    return st;
}

static const struct model_spec *find_member(void *user, const struct ensemble_step *step,
                                            struct error *err) {
    struct finding *finding = user;
    if (str_eq(step->model, finding->name)) {
        error_set(err, ST_BAD_MODEL, "an ensemble cannot be a member of itself");
        return NULL;
    }
    const struct model_version *version = find_version(finding, step, err);
    return version && check_circle(finding, version, 1, err) == ST_OK ? &version->plan.spec : NULL;
}

enum status ensemble_complete(struct repository *repository, const struct model *model,
                              struct model_config *config, struct error *err) {
    struct finding finding = {.repository = repository, .name = model->name};
    lock_acquire(&repository->lock);
    enum status st = ensemble_check(config, find_member, &finding, &config->decoupled, err);
    lock_release(&repository->lock);
    if (st == ST_OK && config->decoupled && config->response_cache) {
        st = error_set(err, ST_BAD_MODEL,
                       "responses of an ensemble with a decoupled member can't be cached: "
                       "response_cache must not be enabled");
    }
    return st;
}

enum status ensemble_check_members(const struct repository *repository,
                                   const struct model_slot *model_slot, struct error *err) {
    const struct model *model = model_slot->serving;
    struct finding finding = {.repository = repository, .name = model_slot->name};
    bool decoupled;
    if (!is_ensemble(model) || !model->ready) {
        return ST_OK;
    }
    const struct model_version *version = model->ready->versions[0]; /* they have the same steps */
    enum status st = ensemble_check(&version->config, find_member, &finding, &decoupled, err);
    if (st == ST_OK && decoupled != version->plan.spec.decoupled) {
        st = error_set(err, ST_BAD_MODEL,
                       "a member %s decoupled now, and %s when the ensemble was loaded: load it "
                       "again",
                       decoupled ? "is" : "is not", decoupled ? "was not" : "was");
    }
    return st;
}

/* ---- when a member changes ------------------------------------------------------------------- */

static bool has_member(const struct model *model, struct str name) {
    for (size_t i = 0; model && i < model->config.ensemble.n_steps; i++) {
        if (str_eq(model->config.ensemble.steps[i].model, name)) {
            return true;
        }
    }
    return false;
}

void ensembles_forget(struct model_slot *model_slot) {
    if (model_slot->is_ensemble) {
        model_slot->is_ensemble = false;
        LIST_REMOVE(model_slot, ensemble_link);
    }
}

static void note_kind(struct repository *repository, struct model_slot *model_slot) {
    bool is = is_ensemble(model_slot->serving) || is_ensemble(model_slot->inactive);
    if (is && !model_slot->is_ensemble) {
        model_slot->is_ensemble = true;
        LIST_INSERT_HEAD(&repository->ensembles, model_slot, ensemble_link);
    } else if (!is) {
        ensembles_forget(model_slot);
    }
}

static const struct published_view *view_of(const struct model_slot *model_slot) {
    return atomic_load_explicit(&model_slot->view, memory_order_acquire);
}

/* The ensemble is published again if its readiness, or the reason, is another one now. */
static void look_again(struct repository *repository, struct model_slot *ensemble) {
    struct error err = {.status = ST_OK};
    const char *before = view_of(ensemble)->missing;
    bool misses = ensemble_check_members(repository, ensemble, &err) != ST_OK;
    if (misses == (before != NULL) && (!misses || strcmp(before, err.text) == 0)) {
        return;
    }
    if (misses) {
        log_event(LOG_WARNING, "ensemble is not ready", LOG_STR("model", ensemble->name),
                  LOG_CSTR("reason", err.text));
    } else {
        log_event(LOG_INFO, "ensemble is ready again", LOG_STR("model", ensemble->name));
    }
    (void)model_slot_publish(repository, ensemble); /* else the old view stays */
}

/* What a request has loaded with a configuration of its own is not loaded from its directory. */
static bool may_load(const struct model_slot *ensemble) {
    const struct model *failed = ensemble->inactive;
    return !ensemble->serving && !ensemble->loading && failed && !failed->unloaded &&
           !failed->override_config.ptr && ensemble->origin.path.len > 0;
}

void ensembles_note_published(struct repository *repository, struct model_slot *model_slot) {
    const struct published_view *view = view_of(model_slot);
    bool is_ready = view->ready && !view->missing;
    struct model_slot *ensemble;
    note_kind(repository, model_slot);
    LIST_FOREACH(ensemble, &repository->ensembles, ensemble_link) {
        if (has_member(ensemble->serving, model_slot->name)) {
            look_again(repository, ensemble);
        } else if (is_ready && may_load(ensemble) &&
                   has_member(ensemble->inactive, model_slot->name)) {
            (void)changes_load_found(repository, ensemble->name);
        }
    }
}

/* ---- unloading ------------------------------------------------------------------------------- */

static bool is_used(const struct repository *repository, struct str name) {
    const struct model_slot *ensemble;
    LIST_FOREACH(ensemble, &repository->ensembles, ensemble_link) {
        if (has_member(ensemble->serving, name)) {
            return true;
        }
    }
    return false;
}

void ensembles_unload_members(struct repository *repository, const struct model *model) {
    lock_assert_held(&repository->lock);
    for (size_t i = 0; i < model->config.ensemble.n_steps; i++) {
        struct str name = model->config.ensemble.steps[i].model;
        struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
        const struct model *member = model_slot ? model_slot->serving : NULL;
        if (member && model_slot->loaded_as_member && !is_used(repository, name)) {
            changes_unload(repository, name);
            ensembles_unload_members(repository, member); /* it is kept until it is closed */
        }
    }
}
