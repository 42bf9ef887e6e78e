/* Changes by request: a queue, and threads that are made when there is work for them. Of one model
 * there is never more than one change under way, so that the last that was asked for is what comes
 * of it. */
#include <assert.h>

#include "core/base/log.h"
#include "serve/repository/internal.h"
#include "serve/repository/override.h"

/* ---- what is done ---------------------------------------------------------------------------- */

static enum status error_bad_name(struct str name, struct error *err) {
    char quoted[TENSOR_NAME_TEXT_BYTES];
    return error_set(err, ST_BAD_REQUEST, "no model can have the name %s",
                     tensor_name_print(name, quoted));
}

/* Is it served as it is in its directory, which has not changed? */
static bool is_unchanged(struct repository *repository, const struct model *model) {
    lock_acquire(&repository->lock);
    const struct model_slot *model_slot =
        model_slot_find(repository_name_table(repository), model->name);
    const struct model *served = model_slot ? model_slot->serving : NULL;
    bool same = served && !served->override_config.ptr && !model->override_config.ptr &&
                served->fingerprint == model->fingerprint && served->error.status == ST_OK &&
                str_eq(served->source, model->source);
    lock_release(&repository->lock);
    return same;
}

static enum status change_load(struct repository *repository, struct repository_change *change,
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
        lock_acquire(&repository->lock);
        struct model_slot *model_slot = model_slot_get(repository, change->model);
        bool kept = model_slot && model_slot_set_origin(model_slot, &origin);
        lock_release(&repository->lock);
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
    enum status st = load_model(repository, model, LOAD_REQUESTED, err);
    return st == ST_OK ? ST_OK
                       : error_prefix(err, "failed to load \"%.*s\"", STR_ARG(change->model));
}

static void change_unload(struct repository *repository, const struct repository_change *change) {
    lock_acquire(&repository->lock);
    struct model_slot *model_slot =
        model_slot_find(repository_name_table(repository), change->model);
    if (model_slot) {
        unload_model_slot(repository, model_slot);
    }
    lock_release(&repository->lock);
    if (repository->on_state_changed) {
        repository->on_state_changed(repository->on_state_changed_user);
    }
}

static void change_execute(struct repository *repository, struct repository_change *change) {
    change->error.status = ST_OK;
    if (change->action == REPOSITORY_SCAN) {
        poll_scan(repository);
    } else if (change->action == REPOSITORY_UNLOAD) {
        change_unload(repository, change);
    } else {
        struct arena *arena = arena_new(NULL, 0);
        if (arena) {
            (void)change_load(repository, change, arena); /* the outcome is in the change */
        } else {
            error_set(&change->error, ST_NO_MEMORY, "out of memory for the model");
        }
        arena_free(arena);
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool model_is_changing(const struct changes *changes,
                              const struct repository_change *change) {
    for (size_t i = 0; change->action != REPOSITORY_SCAN && i < changes->n_running; i++) {
        if (str_eq(changes->running[i], change->model)) {
            return true;
        }
    }
    return false;
}

/* Takes the first that may begin: those of a model that is being changed wait, and so do all until
 * the start has loaded its models. Returns: NULL when there is none. */
static struct repository_change *pop_runnable_change(struct repository *repository) {
    struct changes *changes = &repository->changes;
    struct repository_change *before = NULL, *change = changes->first;
    bool started = atomic_load_explicit(&repository->n_start_pending, memory_order_acquire) == 0;
    while (change && (model_is_changing(changes, change) ||
                      (!started && change->action != REPOSITORY_SCAN))) {
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
        change->action == REPOSITORY_SCAN ? STR("") : change->model;
    return change;
}

static void change_finish(struct repository *repository, struct repository_change *change) {
    struct changes *changes = &repository->changes;
    struct str name = change->action == REPOSITORY_SCAN ? STR("") : change->model;
    size_t i = 0;
    while (!str_eq(changes->running[i], name)) {
        i++;
    }
    changes->running[i] = changes->running[--changes->n_running];
    lock_cond_broadcast(&changes->work); /* the model's next may begin */
}

static void change_reject(struct repository *repository, struct repository_change *change) {
    error_set(&change->error, ST_NOT_READY, "the server is being stopped");
    atomic_fetch_sub(&repository->n_busy, 1);
    worker_post(change->worker, &change->msg);
}

static bool is_ending(const struct repository *repository) {
    return atomic_load_explicit(&repository->draining, memory_order_seq_cst);
}

void changes_refuse(struct repository *repository) {
    struct changes *changes = &repository->changes;
    lock_acquire(&repository->lock);
    while (changes->first) {
        struct repository_change *change = changes->first;
        changes->first = change->next;
        change_reject(repository, change);
    }
    changes->last = NULL;
    changes->n_queued = 0;
    lock_cond_broadcast(&changes->work);
    lock_release(&repository->lock);
}

static void thread_main(void *arg) {
    struct repository *repository = arg;
    struct changes *changes = &repository->changes;
    lock_acquire(&repository->lock);
    while (!is_ending(repository)) {
        struct repository_change *change = pop_runnable_change(repository);
        if (!change) {
            changes->n_waiting++;
            lock_cond_wait(&repository->lock, &changes->work);
            changes->n_waiting--;
            continue;
        }
        lock_release(&repository->lock);
        change_execute(repository, change);
        lock_acquire(&repository->lock);
        change_finish(repository, change);
        atomic_fetch_sub(&repository->n_busy, 1);
        worker_post(change->worker, &change->msg); /* it may be gone now */
    }
    lock_release(&repository->lock);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void on_done(struct worker_msg *msg) {
    struct repository_change *change =
        (struct repository_change *)(void *)((char *)msg - offsetof(struct repository_change, msg));
    change->done(change);
}

/* A thread more where all are busy. Returns: false when there is none at all. */
static bool ensure_thread(struct repository *repository) {
    struct changes *changes = &repository->changes;
    if (changes->n_queued >= changes->n_waiting && changes->n_threads < changes->max_threads) {
        int rc = uv_thread_create(&changes->threads[changes->n_threads], thread_main, repository);
        changes->n_threads += rc == 0;
    }
    return changes->n_threads > 0;
}

static enum status check_change(const struct repository *repository,
                                const struct repository_change *change, struct error *err) {
    if (change->action == REPOSITORY_SCAN) {
        return ST_OK;
    }
    if (repository->control != REPOSITORY_EXPLICIT) {
        return error_set(err, ST_NOT_READY,
                         "models are loaded and unloaded by request only with "
                         "--model-control-mode explicit");
    }
    return model_name_is_valid(change->model) ? ST_OK : error_bad_name(change->model, err);
}

void repository_change(struct repository *repository, struct repository_change *change) {
    struct changes *changes = &repository->changes;
    change->msg = (struct worker_msg){.run = on_done};
    change->next = NULL;
    change->error.status = ST_OK;
    atomic_fetch_add(&repository->n_busy, 1);
    if (check_change(repository, change, &change->error) != ST_OK) {
        atomic_fetch_sub(&repository->n_busy, 1);
        worker_post(change->worker, &change->msg);
        return;
    }
    lock_acquire(&repository->lock);
    if (is_ending(repository) || !ensure_thread(repository)) {
        change_reject(repository, change);
    } else {
        *(changes->last ? &changes->last->next : &changes->first) = change;
        changes->last = change;
        changes->n_queued++;
        lock_cond_signal(&changes->work);
    }
    lock_release(&repository->lock);
}

void changes_stop(struct repository *repository) {
    struct changes *changes = &repository->changes;
    lock_acquire(&repository->lock);
    lock_cond_broadcast(&changes->work);
    lock_release(&repository->lock);
    for (size_t i = 0; i < changes->n_threads; i++) {
        uv_thread_join(&changes->threads[i]);
    }
    changes->n_threads = 0;
}
