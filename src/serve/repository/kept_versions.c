/* Which versions stay, and their way from one model to the next. */
#include "serve/repository/kept_versions.h"

static struct model_attempt *find_attempt(const struct model *model, uint64_t number) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].number == number) {
            return &model->attempts[i];
        }
    }
    return NULL;
}

/* Returns: whether what the versions of both have in common is the same. A request that gives a
 * configuration loads all again, and what an ensemble is depends on its members, too. */
static bool is_alike(const struct model *model, const struct model *served) {
    return model->error.status == ST_OK &&
           (!model->override_config.ptr || model->only_version > 0) &&
           model->config.ensemble.n_steps == 0 && served->config.ensemble.n_steps == 0 &&
           model->common_fingerprint == served->common_fingerprint &&
           model->file_backend == served->file_backend && model->params == served->params &&
           str_eq(model->source, served->source);
}

void versions_keep(struct model *model, const struct model *served) {
    if (!served || !is_alike(model, served)) {
        return;
    }
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_attempt *attempt = &model->attempts[i];
        const struct model_attempt *open = find_attempt(served, attempt->number);
        if (open && open->version && open->fingerprint == attempt->fingerprint &&
            attempt->fingerprint != 0) {
            attempt->version = open->version;
            attempt->kept = true;
        }
    }
}

struct model *versions_without(const struct model *served, uint64_t number) {
    const struct model_origin origin = {.name = served->name,
                                        .path = served->source,
                                        .file_backend = served->file_backend,
                                        .params = served->params};
    struct model *model = model_new(&origin);
    if (!model) {
        return NULL;
    }
    model->has_config = served->has_config;
    model->fingerprint = served->fingerprint;
    model->common_fingerprint = served->common_fingerprint;
    model->by_version = true;
    model->attempts = arena_calloc(model->arena, served->n_attempts, sizeof(*model->attempts));
    bool complete = model->attempts != NULL;
    if (served->override_config.ptr) {
        model->override_config = arena_dup(model->arena, served->override_config);
        complete = complete && model->override_config.ptr;
    }
    for (size_t i = 0; complete && i < served->n_attempts; i++) {
        const struct model_attempt *attempt = &served->attempts[i];
        if (attempt->number != number && attempt->version) {
            model->attempts[model->n_attempts++] =
                (struct model_attempt){.number = attempt->number,
                                       .version = attempt->version,
                                       .fingerprint = attempt->fingerprint,
                                       .kept = true};
        }
    }
    if (!complete || model->n_attempts == 0) {
        model_free(model);
        return NULL;
    }
    model->config = model->attempts[0].version->config;
    return model;
}

/* The files that came with a request are those of the versions. */
static void move_directory(struct model *to, struct model *from) {
    if (from->temporary_directory.path && str_eq(to->source, from->source)) {
        to->temporary_directory = from->temporary_directory;
        to->temporary_directory.path = to->source.ptr;
        from->temporary_directory.path = NULL;
    }
}

void versions_take_over(struct model *model, struct model *served) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_attempt *attempt = &model->attempts[i];
        if (attempt->kept) {
            struct model_attempt *from = find_attempt(served, attempt->number);
            if (!from->home) {
                atomic_fetch_add_explicit(&served->refs, 1, memory_order_relaxed);
            }
            attempt->home = from->home ? from->home : served;
            attempt->kept = false;
            from->home = NULL;
            from->version = NULL;
        }
    }
    move_directory(model, served);
}

void versions_give_back(struct model *model, struct model *served) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_attempt *attempt = &model->attempts[i];
        if (attempt->home) {
            struct model_attempt *to = find_attempt(served, attempt->number);
            if (attempt->home == served) {
                atomic_fetch_sub_explicit(&served->refs, 1, memory_order_relaxed);
            } else {
                to->home = attempt->home;
            }
            to->version = attempt->version;
            attempt->home = NULL;
            attempt->kept = true;
        }
    }
    move_directory(served, model);
}

void versions_set_siblings(const struct model *model) {
    for (size_t i = 0; i < model->ready->n; i++) {
        atomic_store_explicit(&model->ready->versions[i]->siblings, &model->ready->siblings,
                              memory_order_release);
    }
}
