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
    return model->error.status == ST_OK && !model->override_config.ptr &&
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
}

void versions_set_siblings(const struct model *model) {
    for (size_t i = 0; i < model->ready->n; i++) {
        atomic_store_explicit(&model->ready->versions[i]->siblings, &model->ready->siblings,
                              memory_order_release);
    }
}
