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
struct waypoint {
    struct worker_msg msg;
    struct repository *repository;
    struct worker *worker;
};

/* ---- the workers ----------------------------------------------------------------------------- */

static void come_through(struct worker_msg *msg) {
    struct repository *repository = ((struct waypoint *)(void *)msg)->repository;
    struct retirement *retirement = &repository->retirement;
    lock_take(&repository->lock);
    if (--retirement->n_awaited == 0) {
        lock_wake_all(&retirement->work);
    }
    lock_drop(&repository->lock);
}

/* Waits, without the lock in between, until every worker has come through. */
static void await_workers(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    if (retirement->nobody_looks) {
        return;
    }
    retirement->n_awaited = retirement->n_waypoints;
    for (size_t i = 0; i < retirement->n_waypoints; i++) {
        worker_post(retirement->waypoints[i].worker, &retirement->waypoints[i].msg);
    }
    while (retirement->n_awaited > 0 && !retirement->nobody_looks) {
        lock_wait(&repository->lock, &retirement->work);
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

static void free_all(struct retired *retired) {
    while (retired) {
        struct retired *next = retired->next;
        free(retired);
        retired = next;
    }
}

/* That it was there is remembered, unless there is something newer to say. The lock is held. */
static bool becomes_past(struct repository *repository, struct model *model) {
    struct shelf *shelf = model->shelf;
    if (!model->unloaded || shelf->serving || shelf->past) {
        return false;
    }
    shelf->past = model;
    if (!shelf_show(repository, shelf)) {
        shelf->past = NULL;
    }
    return shelf->past != NULL;
}

static void close_all(struct repository *repository, struct model *closing) {
    while (closing) {
        struct model *next = closing->next;
        bool was_served = closing->ready != NULL;
        lock_drop(&repository->lock);
        close_versions(closing);
        if (was_served) {
            log_event(LOG_INFO, "model closed", LOG_STR("model", closing->name));
        }
        lock_take(&repository->lock);
        if (closing->unloaded) {
            closing->shelf->closing = false;
        }
        if (!becomes_past(repository, closing)) {
            model_free(closing);
        }
        closing = next;
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Is there something that workers have to come through for? */
static bool is_pending(const struct retirement *retirement) {
    bool pending = retirement->seen || retirement->closing;
    for (const struct model *model = retirement->leaving; model; model = model->next) {
        pending = pending || !model->quiet;
    }
    return pending;
}

static void pass(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    struct retired *seen = retirement->seen;
    struct model *closing = retirement->closing;
    retirement->seen = NULL;
    retirement->closing = NULL;
    for (struct model *model = retirement->leaving; model; model = model->next) {
        model->asked = true;
    }
    await_workers(repository);
    for (struct model *model = retirement->leaving; model; model = model->next) {
        model->quiet = model->asked;
    }
    free_all(seen);
    close_all(repository, closing);
}

/* Until it has become its shelf's past, that it was unloaded is told all the same. */
static bool show_closing(struct repository *repository, const struct model *model) {
    struct shelf *shelf = model->shelf;
    bool before = shelf->closing;
    shelf->closing = before || model->unloaded;
    bool shown = shelf_show(repository, shelf);
    shelf->closing = shown ? shelf->closing : before;
    return shown;
}

/* Hides those that nobody holds. Returns: whether there were any. */
static bool hide(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    struct model **at = &retirement->leaving;
    bool hidden = false;
    while (*at) {
        struct model *model = *at;
        *at = model->next; /* out of the list, so that views don't tell of it */
        if (model->quiet && !is_held(model) && show_closing(repository, model)) {
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
    lock_take(&repository->lock);
    while (!retirement->ending) {
        if (is_pending(retirement)) {
            pass(repository);
        } else if (hide(repository)) {
            continue;
        } else if (retirement->leaving) {
            lock_wait_until_ns(&repository->lock, &retirement->work, clock_now_ns() + HELD_POLL_NS);
        } else {
            lock_wait(&repository->lock, &retirement->work);
        }
    }
    lock_drop(&repository->lock);
}

/* Without the thread, or when the workers are not known, all is kept until retirement_free. */
static void wake(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    if (!retirement->has_thread && retirement->n_waypoints > 0 && !retirement->ending) {
        retirement->has_thread =
            uv_thread_create(&retirement->thread, thread_main, repository) == 0;
    }
    lock_wake_all(&retirement->work);
}

/* ---- what is brought ------------------------------------------------------------------------- */

void retire(struct repository *repository, struct retired *retired) {
    lock_assert_held(&repository->lock);
    retired->next = repository->retirement.seen;
    repository->retirement.seen = retired;
    wake(repository);
}

void retire_past(struct repository *repository, struct model *model) {
    lock_assert_held(&repository->lock);
    if (model) {
        model->unloaded = false; /* it is not to be told of again */
        model->next = repository->retirement.closing;
        repository->retirement.closing = model;
        wake(repository);
    }
}

void retire_model(struct repository *repository, struct shelf *shelf, struct model *model) {
    lock_assert_held(&repository->lock);
    model->shelf = shelf;
    model->next = repository->retirement.leaving;
    repository->retirement.leaving = model;
    wake(repository);
}

void retire_undo(struct repository *repository, struct model *model) {
    lock_assert_held(&repository->lock);
    struct model **at = &repository->retirement.leaving;
    while (*at != model) {
        at = &(*at)->next;
    }
    *at = model->next;
    model->next = NULL;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

static void add_waypoint(struct repository *repository, struct worker *worker) {
    struct retirement *retirement = &repository->retirement;
    retirement->waypoints[retirement->n_waypoints++] =
        (struct waypoint){.msg = {.run = come_through}, .repository = repository, .worker = worker};
}

enum status retirement_init(struct repository *repository, const struct repository_options *options,
                            struct error *err) {
    struct retirement *retirement = &repository->retirement;
    lock_cond_init(&retirement->work);
    retirement->waypoints =
        arena_calloc(repository->arena, options->n_workers + 1, sizeof(retirement->waypoints[0]));
    if (!retirement->waypoints) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
    }
    for (size_t i = 0; i < options->n_workers; i++) {
        add_waypoint(repository, options->workers[i]);
    }
    if (options->main) {
        add_waypoint(repository, options->main);
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
    lock_take(&repository->lock);
    retirement->nobody_looks = true;
    retirement->ending = true;
    lock_wake_all(&retirement->work);
    lock_drop(&repository->lock);
    if (retirement->has_thread) {
        uv_thread_join(&retirement->thread);
        retirement->has_thread = false;
    }
    stop_list(retirement->leaving);
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
    close_list(retirement->leaving);
    close_list(retirement->closing);
    free_all(retirement->seen);
    lock_cond_fini(&retirement->work);
}
