/* What was replaced: kept until nobody can have it any more.
 *
 * A reader keeps what it found in a view or a catalog only for its worker's turn, unless it takes a
 * reference on a version. So once a message has come through every worker, whatever was taken out
 * of sight before it was sent can be reached by references only; and when those are gone too, by
 * nobody. A thread sends the messages and closes models: both take their time.
 *
 *     served → leaving: out of the tables, listed as "unloading" → (all workers came through, no
 *     references) → closing: listed nowhere → (all came through again) → closed */
#include <stdlib.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "serve/repository/internal.h"

enum { HELD_POLL_NS = 2000000 };

/* A message to one worker. */
struct quiescent_mark {
    struct worker_msg msg;
    struct repository *repository;
    struct worker *worker;
};

/* ---- the workers ----------------------------------------------------------------------------- */

static void on_quiescent_mark(struct worker_msg *msg) {
    struct repository *repository = ((struct quiescent_mark *)(void *)msg)->repository;
    struct retirement *retirement = &repository->retirement;
    lock_acquire(&repository->lock);
    if (--retirement->n_pending_marks == 0) {
        lock_cond_broadcast(&retirement->work);
    }
    lock_release(&repository->lock);
}

/* Waits, without the lock in between, until every worker has come through. */
static void wait_for_quiescence(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    if (retirement->workers_stopped) {
        return;
    }
    retirement->n_pending_marks = retirement->n_quiescent_marks;
    for (size_t i = 0; i < retirement->n_quiescent_marks; i++) {
        worker_post(retirement->quiescent_marks[i].worker, &retirement->quiescent_marks[i].msg);
    }
    while (retirement->n_pending_marks > 0 && !retirement->workers_stopped) {
        lock_cond_wait(&repository->lock, &retirement->work);
    }
}

/* ---- closing --------------------------------------------------------------------------------- */

static bool is_held(const struct model *model) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_version *version = model->attempts[i].version;
        if (version && atomic_load_explicit(&version->refs, memory_order_acquire) > 1) {
            return true;
        }
    }
    return false;
}

static void close_versions(struct model *model) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_version *version = model->attempts[i].version;
        if (version) {
            version_stop(version);
            version_close(version);
            model->attempts[i].version = NULL;
        }
    }
    model->ready = NULL;
}

static void free_snapshots(struct retired_snapshot *retired) {
    while (retired) {
        struct retired_snapshot *next = retired->next;
        free(retired);
        retired = next;
    }
}

/* That it was there is remembered, unless there is something newer to say. The lock is held. */
static bool keep_as_inactive(struct repository *repository, struct model *model) {
    struct model_slot *model_slot = model->model_slot;
    if (!model->unloaded || model_slot->serving || model_slot->inactive) {
        return false;
    }
    model_slot->inactive = model;
    if (!model_slot_publish(repository, model_slot)) {
        model_slot->inactive = NULL;
    }
    return model_slot->inactive != NULL;
}

static void close_all(struct repository *repository, struct model *closing) {
    while (closing) {
        struct model *next = closing->next;
        bool was_served = closing->ready != NULL;
        lock_release(&repository->lock);
        close_versions(closing);
        if (was_served) {
            log_event(LOG_INFO, "model closed", LOG_STR("model", closing->name));
        }
        lock_acquire(&repository->lock);
        if (closing->unloaded) {
            closing->model_slot->closing = false;
        }
        if (!keep_as_inactive(repository, closing)) {
            model_free(closing);
        }
        closing = next;
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Is there something that workers have to come through for? */
static bool needs_quiescence(const struct retirement *retirement) {
    bool pending = retirement->seen || retirement->closing;
    for (const struct model *model = retirement->unloading; model; model = model->next) {
        pending = pending || !model->quiescent;
    }
    return pending;
}

static void reclaim_pass(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    struct retired_snapshot *seen = retirement->seen;
    struct model *closing = retirement->closing;
    retirement->seen = NULL;
    retirement->closing = NULL;
    for (struct model *model = retirement->unloading; model; model = model->next) {
        model->mark_sent = true;
    }
    wait_for_quiescence(repository);
    for (struct model *model = retirement->unloading; model; model = model->next) {
        model->quiescent = model->mark_sent;
    }
    free_snapshots(seen);
    close_all(repository, closing);
}

/* Until it has become its shelf's past, that it was unloaded is told all the same. */
static bool publish_closing(struct repository *repository, const struct model *model) {
    struct model_slot *model_slot = model->model_slot;
    bool before = model_slot->closing;
    model_slot->closing = before || model->unloaded;
    bool shown = model_slot_publish(repository, model_slot);
    model_slot->closing = shown ? model_slot->closing : before;
    return shown;
}

/* Hides those that nobody holds. Returns: whether there were any. */
static bool unpublish_unused(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    struct model **at = &retirement->unloading;
    bool hidden = false;
    while (*at) {
        struct model *model = *at;
        *at = model->next; /* out of the list, so that views don't tell of it */
        if (model->quiescent && !is_held(model) && publish_closing(repository, model)) {
            model->next = retirement->closing;
            retirement->closing = model;
            hidden = true;
        } else {
            *at = model;
            at = &model->next;
        }
    }
    return hidden;
}

static void thread_main(void *arg) {
    struct repository *repository = arg;
    struct retirement *retirement = &repository->retirement;
    lock_acquire(&repository->lock);
    while (!retirement->stopping) {
        if (needs_quiescence(retirement)) {
            reclaim_pass(repository);
        } else if (unpublish_unused(repository)) {
            continue;
        } else if (retirement->unloading) {
            lock_cond_wait_until_ns(&repository->lock, &retirement->work,
                                    clock_now_ns() + HELD_POLL_NS);
        } else {
            lock_cond_wait(&repository->lock, &retirement->work);
        }
    }
    lock_release(&repository->lock);
}

/* Without the thread, or when the workers are not known, all is kept until retirement_free. */
static void wake_thread(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    if (!retirement->has_thread && retirement->n_quiescent_marks > 0 && !retirement->stopping) {
        retirement->has_thread =
            uv_thread_create(&retirement->thread, thread_main, repository) == 0;
    }
    lock_cond_broadcast(&retirement->work);
}

/* ---- what is brought ------------------------------------------------------------------------- */

void retire_snapshot(struct repository *repository, struct retired_snapshot *retired) {
    lock_assert_held(&repository->lock);
    retired->next = repository->retirement.seen;
    repository->retirement.seen = retired;
    wake_thread(repository);
}

void retire_inactive(struct repository *repository, struct model *model) {
    lock_assert_held(&repository->lock);
    if (model) {
        model->unloaded = false; /* it is not to be told of again */
        model->next = repository->retirement.closing;
        repository->retirement.closing = model;
        wake_thread(repository);
    }
}

void retire_model(struct repository *repository, struct model_slot *model_slot,
                  struct model *model) {
    lock_assert_held(&repository->lock);
    model->model_slot = model_slot;
    model->next = repository->retirement.unloading;
    repository->retirement.unloading = model;
    wake_thread(repository);
}

void retire_cancel(struct repository *repository, struct model *model) {
    lock_assert_held(&repository->lock);
    struct model **at = &repository->retirement.unloading;
    while (*at != model) {
        at = &(*at)->next;
    }
    *at = model->next;
    model->next = NULL;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

static void add_quiescent_mark(struct repository *repository, struct worker *worker) {
    struct retirement *retirement = &repository->retirement;
    retirement->quiescent_marks[retirement->n_quiescent_marks++] = (struct quiescent_mark){
        .msg = {.run = on_quiescent_mark}, .repository = repository, .worker = worker};
}

enum status retirement_init(struct repository *repository, const struct repository_options *options,
                            struct error *err) {
    struct retirement *retirement = &repository->retirement;
    lock_cond_init(&retirement->work);
    retirement->quiescent_marks = arena_calloc(repository->arena, options->n_workers + 1,
                                               sizeof(retirement->quiescent_marks[0]));
    if (!retirement->quiescent_marks) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
    }
    for (size_t i = 0; i < options->n_workers; i++) {
        add_quiescent_mark(repository, options->workers[i]);
    }
    if (options->main) {
        add_quiescent_mark(repository, options->main);
    }
    return ST_OK;
}

static void stop_list(const struct model *model) {
    for (; model; model = model->next) {
        for (size_t i = 0; i < model->n_attempts; i++) {
            if (model->attempts[i].version) {
                version_stop(model->attempts[i].version);
            }
        }
    }
}

void retirement_stop(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    lock_acquire(&repository->lock);
    retirement->workers_stopped = true;
    retirement->stopping = true;
    lock_cond_broadcast(&retirement->work);
    lock_release(&repository->lock);
    if (retirement->has_thread) {
        uv_thread_join(&retirement->thread);
        retirement->has_thread = false;
    }
    stop_list(retirement->unloading);
    stop_list(retirement->closing);
}

static void close_list(struct model *model) {
    while (model) {
        struct model *next = model->next;
        close_versions(model);
        model_free(model);
        model = next;
    }
}

void retirement_free(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    close_list(retirement->unloading);
    close_list(retirement->closing);
    free_snapshots(retirement->seen);
    lock_cond_fini(&retirement->work);
}
