/* Changes by request: a queue, and threads that are made when there is work for them. Of one model
 * there is never more than one change under way, so that the last that was asked for is what comes
 * of it. */
#include <assert.h>

#include "core/base/log.h"
#include "serve/repository/internal.h"
#include "serve/repository/override.h"

/* ---- what is done ---------------------------------------------------------------------------- */

static enum status bad_name(struct str name, struct error *err) {
    char quoted[TENSOR_NAME_TEXT_BYTES];
    return error_set(err, ST_BAD_REQUEST, "no model can have the name %s",
                     tensor_name_print(name, quoted));
}

/* Is it served as it is in its directory, which has not changed? */
static bool is_unchanged(struct repository *repository, const struct model *model) {
    lock_take(&repository->lock);
    const struct shelf *shelf = shelf_find(repository_catalog(repository), model->name);
    const struct model *served = shelf ? shelf->serving : NULL;
    bool same = served && !served->override_config.ptr && !model->override_config.ptr &&
                served->fingerprint == model->fingerprint && served->error.status == ST_OK &&
                str_eq(served->source, model->source);
    lock_drop(&repository->lock);
    return same;
}

static enum status load(struct repository *repository, struct repository_change *change,
                        struct arena *arena) {
    struct error *err = &change->error;
    struct model_origin origin;
    if (change->n_files > 0 && !change->config.ptr) {
        return error_set(
            err, ST_BAD_FIELD,
            "files can stand in for the model's directory only together with `config`");
    }
    bool there = poll_find(repository, change->model, &origin, arena);
    if (!there && change->n_files == 0) {
        char quoted[TENSOR_NAME_TEXT_BYTES];
        return error_set(err, ST_IO, "failed to load %s: it is in no model repository",
                         tensor_name_print(change->model, quoted));
    }
    if (there && !origin.pinned) {
        lock_take(&repository->lock);
        struct shelf *shelf = shelf_get(repository, change->model);
        bool kept = shelf && shelf_set_origin(shelf, &origin);
        lock_drop(&repository->lock);
        if (!kept) {
            return error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
        }
    }
    struct model *model = load_prepare(&origin, change, err);
    if (!model) {
        return err->status;
    }
    if (model->error.status == ST_OK && is_unchanged(repository, model)) {
        model_free(model);
        return ST_OK;
    }
    enum status st = load_model(repository, model, LOAD_ASKED_FOR, err);
    return st == ST_OK ? ST_OK
                       : error_prefix(err, "failed to load \"%.*s\"", STR_ARG(change->model));
}

static void unload(struct repository *repository, const struct repository_change *change) {
    lock_take(&repository->lock);
    struct shelf *shelf = shelf_find(repository_catalog(repository), change->model);
    if (shelf) {
        unload_shelf(repository, shelf);
    }
    lock_drop(&repository->lock);
    if (repository->changed) {
        repository->changed(repository->changed_cookie);
    }
}

static void carry_out(struct repository *repository, struct repository_change *change) {
    change->error.status = ST_OK;
    if (change->act == REPOSITORY_LOOK) {
        poll_look(repository);
    } else if (change->act == REPOSITORY_UNLOAD) {
        unload(repository, change);
    } else {
        struct arena *arena = arena_new(NULL, 0);
        if (arena) {
            (void)load(repository, change, arena); /* the outcome is in the change */
        } else {
            error_set(&change->error, ST_NO_MEMORY, "out of memory for the model");
        }
        arena_free(arena);
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool is_running(const struct changes *changes, const struct repository_change *change) {
    for (size_t i = 0; change->act != REPOSITORY_LOOK && i < changes->n_running; i++) {
        if (str_eq(changes->running[i], change->model)) {
            return true;
        }
    }
    return false;
}

/* Takes the first that may begin: those of a model that is being changed wait, and so do all until
 * the start has loaded its models. Returns: NULL when there is none. */
static struct repository_change *take(struct repository *repository) {
    struct changes *changes = &repository->changes;
    struct repository_change *before = NULL, *change = changes->first;
    bool started = atomic_load_explicit(&repository->n_unsettled, memory_order_acquire) == 0;
    while (change &&
           (is_running(changes, change) || (!started && change->act != REPOSITORY_LOOK))) {
        before = change;
        change = change->next;
    }
    if (!change) {
        return NULL;
    }
    *(before ? &before->next : &changes->first) = change->next;
    if (changes->last == change) {
        changes->last = before;
    }
    changes->n_queued--;
    changes->running[changes->n_running++] =
        change->act == REPOSITORY_LOOK ? STR("") : change->model;
    return change;
}

static void end(struct repository *repository, struct repository_change *change) {
    struct changes *changes = &repository->changes;
    struct str name = change->act == REPOSITORY_LOOK ? STR("") : change->model;
    size_t i = 0;
    while (!str_eq(changes->running[i], name)) {
        i++;
    }
    changes->running[i] = changes->running[--changes->n_running];
    lock_wake_all(&changes->work); /* the model's next may begin */
}

static void refuse(struct repository *repository, struct repository_change *change) {
    error_set(&change->error, ST_NOT_READY, "the server is being stopped");
    atomic_fetch_sub(&repository->n_busy, 1);
    worker_post(change->worker, &change->msg);
}

static bool is_ending(const struct repository *repository) {
    return atomic_load_explicit(&repository->draining, memory_order_seq_cst);
}

void changes_refuse(struct repository *repository) {
    struct changes *changes = &repository->changes;
    lock_take(&repository->lock);
    while (changes->first) {
        struct repository_change *change = changes->first;
        changes->first = change->next;
        refuse(repository, change);
    }
    changes->last = NULL;
    changes->n_queued = 0;
    lock_wake_all(&changes->work);
    lock_drop(&repository->lock);
}

static void thread_main(void *arg) {
    struct repository *repository = arg;
    struct changes *changes = &repository->changes;
    lock_take(&repository->lock);
    while (!is_ending(repository)) {
        struct repository_change *change = take(repository);
        if (!change) {
            changes->n_waiting++;
            lock_wait(&repository->lock, &changes->work);
            changes->n_waiting--;
            continue;
        }
        lock_drop(&repository->lock);
        carry_out(repository, change);
        lock_take(&repository->lock);
        end(repository, change);
        atomic_fetch_sub(&repository->n_busy, 1);
        worker_post(change->worker, &change->msg); /* it may be gone now */
    }
    lock_drop(&repository->lock);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void on_done(struct worker_msg *msg) {
    struct repository_change *change =
        (struct repository_change *)(void *)((char *)msg - offsetof(struct repository_change, msg));
    change->done(change);
}

/* A thread more where all are busy. Returns: false when there is none at all. */
static bool have_thread(struct repository *repository) {
    struct changes *changes = &repository->changes;
    if (changes->n_queued >= changes->n_waiting && changes->n_threads < changes->n_most) {
        int rc = uv_thread_create(&changes->threads[changes->n_threads], thread_main, repository);
        changes->n_threads += rc == 0;
    }
    return changes->n_threads > 0;
}

static enum status check(const struct repository *repository,
                         const struct repository_change *change, struct error *err) {
    if (change->act == REPOSITORY_LOOK) {
        return ST_OK;
    }
    if (repository->control != REPOSITORY_EXPLICIT) {
        return error_set(err, ST_NOT_READY,
                         "models are loaded and unloaded by request only with "
                         "--model-control-mode explicit");
    }
    return model_name_ok(change->model) ? ST_OK : bad_name(change->model, err);
}

void repository_change(struct repository *repository, struct repository_change *change) {
    struct changes *changes = &repository->changes;
    change->msg = (struct worker_msg){.run = on_done};
    change->next = NULL;
    change->error.status = ST_OK;
    atomic_fetch_add(&repository->n_busy, 1);
    if (check(repository, change, &change->error) != ST_OK) {
        atomic_fetch_sub(&repository->n_busy, 1);
        worker_post(change->worker, &change->msg);
        return;
    }
    lock_take(&repository->lock);
    if (is_ending(repository) || !have_thread(repository)) {
        refuse(repository, change);
    } else {
        *(changes->last ? &changes->last->next : &changes->first) = change;
        changes->last = change;
        changes->n_queued++;
        lock_wake_one(&changes->work);
    }
    lock_drop(&repository->lock);
}

void changes_stop(struct repository *repository) {
    struct changes *changes = &repository->changes;
    lock_take(&repository->lock);
    lock_wake_all(&changes->work);
    lock_drop(&repository->lock);
    for (size_t i = 0; i < changes->n_threads; i++) {
        uv_thread_join(&changes->threads[i]);
    }
    changes->n_threads = 0;
}
