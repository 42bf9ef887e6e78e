/* Loads, scans and unloads: which of them run when, and on which threads.
 *
 * A load may take minutes, or for ever when a volume hangs, and the thread that runs it cannot be
 * interrupted. So nothing waits for a load but the changes of the same model: an unload is carried
 * out at once on the caller's thread, scans have threads of their own, and loads of different
 * models run side by side, at most `max_loads`. A load that is cancelled (by an unload) or that
 * takes longer than `load_timeout_ns` is abandoned: its request is answered, its place is free for
 * another load, and its result is discarded when the thread comes back.
 *
 * Scans run one after the other, and one answers all requests that came before it began: a crowd of
 * them makes two.
 *
 * The supervisor is a thread that never reads a file. It queues the scan of the start, which queues
 * the loads, begins a poll when one is due, and abandons what takes too long. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/event/thread.h"
#include "core/must/must.h"
#include "serve/repository/internal.h"
#include "serve/repository/override.h"

/* How long an index request waits for a scan of the directories; it is answered from the last scan
 * then. */
enum { SCAN_TIMEOUT_MS = 2000, MS = 1000000 };

/* How long a poll looks at the files of one model before another poll goes on with the others. */
enum { POLL_MODEL_TIMEOUT_MS = 5000 };

enum job_kind {
    JOB_START, /* finds the models of the start */
    JOB_LOAD,
    JOB_SCAN, /* for a request */
    JOB_POLL, /* REPOSITORY_POLLED */
};

/* What a thread carries out. */
struct job {
    TAILQ_ENTRY(job) link; /* in `queue` or `running` */
    struct arena *arena;   /* contains the job */
    enum job_kind kind;
    enum load_occasion occasion;      /* JOB_LOAD */
    struct str name;                  /* JOB_LOAD */
    struct repository_change *change; /* to be answered; NULL: none, or answered */
    bool uses_change;                 /* the thread reads the change: it is answered afterwards */
    STAILQ_HEAD(, repository_change) joined; /* JOB_SCAN: further changes to be answered */
    struct error error;                      /* for the change */
    struct load_override override;
    struct model *model;  /* JOB_LOAD: from when it is prepared until it is freed; at the start from
                              the beginning, to be replaced by the prepared one */
    struct str looks_at;  /* JOB_POLL: the model whose files it looks at; ptr NULL: none */
    uint64_t deadline_ns; /* when it runs; 0: none */
    atomic_bool cancelled; /* JOB_LOAD: it stops looking at files */
    bool abandoned;
    /* JOB_LOAD of an ensemble, which is queued again, with its model prepared, until its members
     * are loaded */
    bool prepared;
    bool queued_members;   /* once: a member that fails to load is not loaded again and again */
    struct str waits_for;  /* the model whose load it waits for; ptr NULL: none */
    bool as_member;        /* JOB_LOAD: it is loaded for an ensemble */
    const char *directory; /* JOB_LOAD: to be registered; NULL: none */
    bool registered;       /* it was, by this load; under the lock */
};

static bool is_ending(const struct repository *repository) {
    return atomic_load_explicit(&repository->draining, memory_order_seq_cst);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Returns: NULL when out of memory. */
static struct job *job_new(enum job_kind kind, struct str name) {
    struct arena *arena = arena_new(NULL, 0);
    struct job *job = arena ? arena_calloc(arena, 1, sizeof(*job)) : NULL;
    if (job) {
        job->arena = arena;
        job->kind = kind;
        STAILQ_INIT(&job->joined);
        job->name = arena_dup(arena, name);
    }
    if (!job || !job->name.ptr) {
        arena_free(arena);
        return NULL;
    }
    return job;
}

/* The lock is held. */
static void job_answer(struct job *job) {
    struct repository_change *change = job->change;
    if (change && !job->uses_change) {
        job->change = NULL;
        change->error = job->error;
        worker_post(change->worker, &change->msg); /* the change may be freed now */
    }
    while ((change = STAILQ_FIRST(&job->joined))) {
        STAILQ_REMOVE_HEAD(&job->joined, link);
        change->error = job->error;
        worker_post(change->worker, &change->msg);
    }
}

/* The scan of the start and its loads count until they are done or abandoned. */
static void start_load_finish(struct repository *repository, const struct job *job) {
    if (job->kind == JOB_START || (job->kind == JOB_LOAD && job->occasion == LOAD_AT_START)) {
        atomic_fetch_sub_explicit(&repository->n_start_pending, 1, memory_order_release);
    }
}

/* Frees a job that is in no list. The lock is held. */
static void job_free(struct repository *repository, struct job *job) {
    job_answer(job);
    atomic_fetch_sub(&repository->n_busy, 1);
    arena_free(job->arena);
}

/* Returns: whether there is a load of it, be it one that is abandoned and still runs. */
static bool has_load(const struct job_list *jobs, struct str name) {
    const struct job *job;
    TAILQ_FOREACH(job, jobs, link) {
        if (job->kind == JOB_LOAD && str_eq(job->name, name)) {
            return true;
        }
    }
    return false;
}

/* Returns: a load of it that has not been abandoned; NULL: none. */
static struct job *find_load(struct job_list *jobs, struct str name) {
    struct job *job;
    TAILQ_FOREACH(job, jobs, link) {
        if (job->kind == JOB_LOAD && !job->abandoned && str_eq(job->name, name)) {
            return job;
        }
    }
    return NULL;
}

/* Returns: a scan that has not been abandoned; NULL: none. */
static struct job *find_scan(struct job_list *jobs) {
    struct job *job;
    TAILQ_FOREACH(job, jobs, link) {
        if (job->kind == JOB_SCAN && !job->abandoned) {
            return job;
        }
    }
    return NULL;
}

/* ---- abandoning ------------------------------------------------------------------------------ */

/* The lock is held. The thread finds `abandoned` when it comes back. */
static void job_abandon(struct repository *repository, struct job *job, bool unloaded) {
    struct changes *changes = &repository->changes;
    job->abandoned = true;
    atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
    changes->n_abandoned++;
    if (job->kind == JOB_POLL) {
        changes->polling = false;
        changes->next_poll_ns = clock_now_ns() + repository->repository_poll_ns;
    }
    if (job->kind == JOB_LOAD) {
        changes->n_loading--;
        load_abandon(repository, job->name, job->model, job->occasion, unloaded, &job->error);
        start_load_finish(repository, job);
        if (job->registered) {
            registered_remove(repository, job->name);
        }
    } else if (job->kind == JOB_SCAN) {
        changes->n_late_scans++;
        /* The directories do not answer: the requests that wait for the next scan do not wait for
         * it. */
        struct job *queued = find_scan(&changes->queue);
        if (queued) {
            TAILQ_REMOVE(&changes->queue, queued, link);
            job_free(repository, queued);
        }
    } else if (job->kind == JOB_START) {
        start_fail(repository, &job->error);
        start_load_finish(repository, job);
    }
    job_answer(job);
    lock_cond_broadcast(&changes->work);
    lock_cond_broadcast(&changes->supervise);
}

static void abandon_late(struct repository *repository, struct job *job) {
    if (job->kind == JOB_START) {
        error_set(&job->error, ST_BAD_CONFIG,
                  "looking for models took longer than --model-load-timeout (%" PRIu64 " s)",
                  repository->changes.load_timeout_ns / 1000000000);
        log_event(LOG_ERROR, "the model repositories do not answer",
                  LOG_CSTR("reason", job->error.text));
    } else if (job->kind == JOB_LOAD) {
        error_set(&job->error, ST_BAD_MODEL,
                  "loading took longer than --model-load-timeout (%" PRIu64 " s)",
                  repository->changes.load_timeout_ns / 1000000000);
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", job->name),
                  LOG_CSTR("reason", job->error.text));
    } else if (job->kind == JOB_POLL) {
        log_event(LOG_WARNING, "the files of a model do not answer: the others are polled without",
                  LOG_STR("model", job->looks_at));
    } else {
        log_message(LOG_WARNING, "the model repositories do not answer: the index is that of the "
                                 "last scan");
    }
    job_abandon(repository, job, false);
}

void changes_cancel(struct repository *repository, struct str name) {
    struct changes *changes = &repository->changes;
    struct error why;
    struct job *job;
    error_set(&why, ST_NOT_READY, "the load of \"%.*s\" was cancelled: the model was unloaded",
              STR_ARG(name));
    while ((job = find_load(&changes->queue, name))) {
        job->error = why;
        TAILQ_REMOVE(&changes->queue, job, link);
        load_abandon(repository, name, job->model, job->occasion, true, &why);
        model_free(job->model);
        start_load_finish(repository, job);
        job_free(repository, job);
    }
    while ((job = find_load(&changes->running, name))) {
        log_event(LOG_INFO, "model load cancelled", LOG_STR("model", name));
        job->error = why;
        job_abandon(repository, job, true);
    }
    lock_cond_broadcast(&changes->supervise);
}

/* ---- the members of an ensemble -------------------------------------------------------------- */

static bool enqueue(struct repository *repository, struct job *job);

static struct job *find_any_load(struct changes *changes, struct str name) {
    struct job *job = find_load(&changes->running, name);
    return job ? job : find_load(&changes->queue, name);
}

/* Returns: whether the load waits for one of `name`, by way of others. */
static bool waits_for_load_of(struct changes *changes, const struct job *job, struct str name) {
    /* Each waits for one, and none for itself by way of others: the chain ends. */
    while (job && job->waits_for.ptr) {
        if (str_eq(job->waits_for, name)) {
            return true;
        }
        job = find_any_load(changes, job->waits_for);
    }
    return false;
}

/* With explicit control the members of an ensemble are loaded with it. */
static void load_member(struct repository *repository, struct str name) {
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    bool served = model_slot && model_slot->serving;
    if (served || repository->model_control_mode != REPOSITORY_EXPLICIT || is_ending(repository) ||
        !model_name_is_valid(name) || find_any_load(&repository->changes, name)) {
        return;
    }
    struct job *job = job_new(JOB_LOAD, name);
    if (job) { /* else the ensemble says that the member is not there */
        job->occasion = LOAD_REQUESTED;
        job->as_member = true;
        enqueue(repository, job);
    }
}

/* Finds a load to wait for. The lock is held. */
static void set_waits_for(struct repository *repository, struct job *job) {
    const struct model_ensemble *ensemble = &job->model->config.ensemble;
    struct changes *changes = &repository->changes;
    job->waits_for = (struct str){NULL, 0};
    for (size_t i = 0; i < ensemble->n_steps && !job->waits_for.ptr; i++) {
        struct str name = ensemble->steps[i].model;
        const struct job *load = find_any_load(changes, name);
        if (!load || load == job) {
            continue;
        }
        if (waits_for_load_of(changes, load, job->name)) {
            char other[QUOTED_NAME_BYTES];
            error_set(&job->model->error, ST_BAD_MODEL,
                      "%.*s: ensemble %s has this one as a member, by way of others or at once: a "
                      "circle",
                      STR_ARG(ensemble->steps[i].place), quote_name(name, other));
            return;
        }
        job->waits_for = name;
    }
}

/* Returns: whether the load of an ensemble has to wait for those of its members, which may be
 * queued by this. */
static bool wait_for_members(struct repository *repository, struct job *job) {
    bool waits = false;
    lock_acquire(&repository->lock);
    struct model *model = job->model;
    if (model && model->error.status == ST_OK && model->config.ensemble.n_steps > 0 &&
        !job->abandoned && !is_ending(repository)) {
        for (size_t i = 0; i < model->config.ensemble.n_steps && !job->queued_members; i++) {
            load_member(repository, model->config.ensemble.steps[i].model);
        }
        job->queued_members = true;
        set_waits_for(repository, job);
        waits = job->waits_for.ptr != NULL;
    }
    lock_release(&repository->lock);
    return waits;
}

/* ---- running a load -------------------------------------------------------------------------- */

/* Ends the use of the change. Returns: whether the job was abandoned meanwhile. */
static bool release_change(struct repository *repository, struct job *job) {
    lock_acquire(&repository->lock);
    job->uses_change = false;
    bool abandoned = job->abandoned;
    if (abandoned) {
        job_answer(job);
    }
    lock_release(&repository->lock);
    return abandoned;
}

/* Copies what the change gives, since the request may be answered before the load has ended. */
static enum status copy_override(struct job *job, struct error *err) {
    const struct repository_change *change = job->change;
    enum status st = ST_OK;
    if (change->n_files > 0 && !change->config.ptr) {
        st = error_set(err, ST_BAD_FIELD,
                       "files can stand in for the model's directory only together with `config`");
    }
    job->override.version = change->version;
    if (st == ST_OK && change->config.ptr) {
        job->override.config = arena_dup(job->arena, change->config);
        st = job->override.config.ptr ? ST_OK : error_no_memory(err, "the model's configuration");
    }
    if (st == ST_OK && change->n_files > 0) {
        st = override_write(job->arena, change->files, change->n_files, &job->override.directory,
                            err);
    }
    return st;
}

/* Makes the model known to the job, so that it can be abandoned with it. */
static void set_model(struct repository *repository, struct job *job, struct model *model) {
    lock_acquire(&repository->lock);
    model->abandoned = job->abandoned;
    if (job->model) {
        load_replace_start(repository, &job->model, model);
    } else {
        job->model = model;
    }
    lock_release(&repository->lock);
}

/* Returns: ST_OK with *unchanged when the served model is what the files say already. */
static enum status prepare(struct repository *repository, struct job *job, bool *unchanged,
                           struct error *err) {
    struct model *model = NULL;
    enum status st = job->directory ? registered_add(repository, job->name, job->directory,
                                                     &job->cancelled, &job->registered, err)
                                    : ST_OK;
    if (st == ST_OK) {
        st = load_prepare(repository, job->name, &job->override, job->occasion, &job->cancelled,
                          &model, unchanged, err);
    }
    if (st == ST_OK && !*unchanged) {
        set_model(repository, job, model);
    } else if (st != ST_OK && job->model) {
        job->model->error = *err;
    }
    return st;
}

/* Everything before the versions are opened. *unchanged: as load_prepare. */
static enum status read_files(struct repository *repository, struct job *job, bool *unchanged,
                              struct error *err) {
    enum status st = ST_OK;
    *unchanged = false;
    if (job->prepared) {
        return ST_OK;
    }
    job->prepared = true;
    if (job->change) {
        st = copy_override(job, err);
    }
    bool abandoned = release_change(repository, job);
    return st == ST_OK && !abandoned ? prepare(repository, job, unchanged, err) : st;
}

static void run_load(struct repository *repository, struct job *job, struct error *err) {
    bool unchanged;
    err->status = ST_OK;
    enum status st = read_files(repository, job, &unchanged, err);
    if (st == ST_OK && !unchanged && wait_for_members(repository, job)) {
        return;
    }
    bool is_unreadable = job->model && job->model->error.status != ST_OK; /* its configuration */
    if (job->model) {
        job->override.directory.path = NULL; /* the model's */
        st = load_model(repository, &job->model, job->occasion, err);
    }
    if (job->override.directory.path) {
        override_remove(&job->override.directory);
    }
    bool complete = st == ST_OK || st == ST_IO || st == ST_UNKNOWN_MODEL ||
                    st == ST_UNKNOWN_VERSION || st == ST_MODEL_EXISTS;
    if (!complete && job->occasion == LOAD_REQUESTED) {
        char name[QUOTED_NAME_BYTES]; /* as the reference server's begin: clients compare them */
        error_prefix(err,
                     is_unreadable || st == ST_BAD_CONFIG || st == ST_BAD_FIELD
                         ? "failed to load %s, failed to poll from model repository"
                         : "load failed for model %s",
                     quote_name_single(job->name, name));
    }
}

/* ---- the start ------------------------------------------------------------------------------- */

static void run_start(struct repository *repository, const struct job *job, struct error *err) {
    struct start_found found;
    enum status st = start_scan(repository, &found, err);
    if (st == ST_OK) {
        lock_acquire(&repository->lock);
        st = job->abandoned ? error_set(err, ST_NOT_READY, "abandoned")
                            : start_publish(repository, &found, err);
        lock_release(&repository->lock);
    }
    start_discard(&found);
    if (st == ST_OK && repository->on_scanned) {
        st = repository->on_scanned(repository->on_scanned_user, err);
    }
    err->status = st;
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool on_poll_model(void *user, struct str name) {
    struct job *job = user;
    job->looks_at = name;
    job->deadline_ns = clock_now_ns() + (uint64_t)POLL_MODEL_TIMEOUT_MS * MS;
    return !job->abandoned;
}

static void job_run(struct repository *repository, struct job *job, struct error *err) {
    err->status = ST_OK;
    switch (job->kind) {
    case JOB_START:
        run_start(repository, job, err);
        break;
    case JOB_LOAD:
        run_load(repository, job, err);
        break;
    case JOB_SCAN:
        poll_scan(repository);
        break;
    case JOB_POLL:
        poll_models(repository, &(struct poll_watch){on_poll_model, job});
        break;
    }
}

/* Returns: whether the job may start while `n_loads` loads run: nothing before the scan of the
 * start has ended, no load while `max_loads` run, and none of a model that is being loaded; one
 * scan at a time. */
static bool is_runnable(struct changes *changes, const struct job *job, size_t n_loads) {
    if (changes->starting) {
        return job->kind == JOB_START;
    }
    if (job->kind == JOB_SCAN) {
        return !find_scan(&changes->running);
    }
    return job->kind != JOB_LOAD ||
           (n_loads < changes->max_loads && !find_load(&changes->running, job->name) &&
            !(job->waits_for.ptr && find_any_load(changes, job->waits_for)));
}

/* The first job that may start. Returns: NULL when there is none. */
static struct job *find_runnable(struct changes *changes) {
    struct job *job;
    TAILQ_FOREACH(job, &changes->queue, link) {
        if (is_runnable(changes, job, changes->n_loading)) {
            return job;
        }
    }
    return NULL;
}

/* The lock is held. */
static void job_begin(struct repository *repository, struct job *job) {
    struct changes *changes = &repository->changes;
    uint64_t timeout_ns = job->kind == JOB_SCAN   ? (uint64_t)SCAN_TIMEOUT_MS * MS
                          : job->kind == JOB_POLL ? (uint64_t)POLL_MODEL_TIMEOUT_MS * MS
                                                  : changes->load_timeout_ns;
    TAILQ_REMOVE(&changes->queue, job, link);
    TAILQ_INSERT_TAIL(&changes->running, job, link);
    changes->n_loading += job->kind == JOB_LOAD;
    job->deadline_ns = timeout_ns > 0 ? clock_now_ns() + timeout_ns : 0;
    job->uses_change = job->kind == JOB_LOAD && job->change && !job->prepared;
    job->waits_for = (struct str){NULL, 0};
    lock_cond_broadcast(&changes->supervise);
}

/* Queues the loads of the start, by name. */
static void enqueue_start(struct repository *repository) {
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        struct model_slot *model_slot = name_table->model_slots[i];
        if (!model_slot->load_at_start) {
            continue;
        }
        struct job *job = job_new(JOB_LOAD, model_slot->name);
        model_slot->load_at_start = false;
        if (job) {
            job->occasion = LOAD_AT_START;
            job->model = model_slot->loading;
            enqueue(repository, job);
        } else {
            log_event(LOG_ERROR, "model failed to load", LOG_STR("model", model_slot->name),
                      LOG_CSTR("reason", "out of memory"));
            atomic_fetch_sub_explicit(&repository->n_start_pending, 1, memory_order_release);
        }
    }
}

/* The load of an ensemble waits for its members in the queue, where it takes no thread. */
static void job_requeue(struct repository *repository, struct job *job) {
    struct changes *changes = &repository->changes;
    TAILQ_REMOVE(&changes->running, job, link);
    changes->n_loading--;
    TAILQ_INSERT_TAIL(&changes->queue, job, link);
    lock_cond_broadcast(&changes->work);
    lock_cond_broadcast(&changes->supervise);
}

/* The model of a load that is not carried out; one of the start is its slot's until it is
 * abandoned. */
static void drop_prepared(struct job *job) {
    if (job->abandoned || job->occasion != LOAD_AT_START) {
        model_free(job->model);
        job->model = NULL;
    }
}

static void note_loaded(struct repository *repository, const struct job *job) {
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), job->name);
    if (model_slot && job->occasion != LOAD_FOUND) {
        model_slot->loaded_as_member = job->as_member;
    }
}

static void job_end(struct repository *repository, struct job *job, const struct error *err) {
    struct changes *changes = &repository->changes;
    if (job->kind == JOB_LOAD && err->status == ST_OK && !job->abandoned) {
        note_loaded(repository, job);
    } else if (job->registered && !job->abandoned) {
        registered_remove(repository, job->name);
    }
    TAILQ_REMOVE(&changes->running, job, link);
    if (job->abandoned) {
        changes->n_abandoned--;
        changes->n_late_scans -= job->kind == JOB_SCAN;
    } else {
        changes->n_loading -= job->kind == JOB_LOAD;
        job->error = *err;
        if (job->kind == JOB_START) {
            repository->changes.starting = false; /* its models are loaded, or it failed */
            if (err->status != ST_OK) {
                start_fail(repository, err);
            } else if (!is_ending(repository)) {
                enqueue_start(repository);
            }
        }
        start_load_finish(repository, job);
    }
    if (job->kind == JOB_POLL && !job->abandoned) {
        changes->polling = false;
        changes->next_poll_ns = clock_now_ns() + repository->repository_poll_ns;
    }
    job_free(repository, job);
    lock_cond_broadcast(&changes->work); /* the model's next load may start */
    lock_cond_broadcast(&changes->supervise);
}

/* Runs the job, with the lock held before and after. */
static void job_execute(struct repository *repository, struct job *job) {
    struct error err;
    job_begin(repository, job);
    lock_release(&repository->lock);
    job_run(repository, job, &err);
    lock_acquire(&repository->lock);
    if (!job->waits_for.ptr) {
        job_end(repository, job, &err);
    } else if (!job->abandoned && !is_ending(repository)) {
        job_requeue(repository, job);
    } else {
        drop_prepared(job);
        job_end(repository, job, &err);
    }
}

static void thread_main(void *arg) {
    struct repository *repository = arg;
    struct changes *changes = &repository->changes;
    lock_acquire(&repository->lock);
    changes->n_starting--;
    while (!changes->stopping) {
        struct job *job = is_ending(repository) ? NULL : find_runnable(changes);
        if (job) {
            job_execute(repository, job);
        } else {
            changes->n_waiting++;
            lock_cond_wait(&repository->lock, &changes->work);
            changes->n_waiting--;
        }
    }
    lock_release(&repository->lock);
}

/* How many jobs may start now. */
static size_t count_runnable(struct changes *changes) {
    size_t n_loads = changes->n_loading, n = 0;
    struct job *job;
    TAILQ_FOREACH(job, &changes->queue, link) {
        if (is_runnable(changes, job, n_loads)) {
            n_loads += job->kind == JOB_LOAD;
            n++;
        }
    }
    return n;
}

/* Starts a thread when more jobs may start than threads wait. Returns: false when there is no
 * thread at all. */
static bool ensure_thread(struct repository *repository) {
    struct changes *changes = &repository->changes;
    if (changes->n_threads < REPOSITORY_MAX_THREADS &&
        count_runnable(changes) > changes->n_waiting + changes->n_starting) {
        int rc = uv_thread_create(&changes->threads[changes->n_threads], thread_main, repository);
        changes->n_threads += rc == 0;
        changes->n_starting += rc == 0;
    }
    lock_cond_signal(&changes->work);
    return changes->n_threads > 0;
}

static bool enqueue(struct repository *repository, struct job *job) {
    struct changes *changes = &repository->changes;
    atomic_fetch_add(&repository->n_busy, 1);
    TAILQ_INSERT_TAIL(&changes->queue, job, link);
    return ensure_thread(repository);
}

/* ---- supervisor ------------------------------------------------------------------------------ */

static void begin_poll(struct repository *repository) {
    struct changes *changes = &repository->changes;
    struct job *job = job_new(JOB_POLL, STR(""));
    changes->poll_now = false;
    if (job) {
        changes->polling = true;
        enqueue(repository, job);
    } else {
        changes->next_poll_ns = clock_now_ns() + repository->repository_poll_ns;
    }
}

static bool may_poll(const struct repository *repository) {
    const struct changes *changes = &repository->changes;
    return repository->model_control_mode == REPOSITORY_POLLED && !changes->starting &&
           !changes->polling && changes->n_abandoned < REPOSITORY_MAX_LOADS;
}

/* Abandons what takes too long. Returns: when to look again. */
static uint64_t abandon_all_late(struct repository *repository, uint64_t now_ns) {
    struct changes *changes = &repository->changes;
    uint64_t next_ns = UINT64_MAX;
    struct job *job;
    TAILQ_FOREACH(job, &changes->running, link) {
        if (job->abandoned || job->deadline_ns == 0) {
            continue;
        }
        if (now_ns >= job->deadline_ns && job->kind == JOB_POLL && !job->looks_at.ptr) {
            job->deadline_ns = now_ns + (uint64_t)POLL_MODEL_TIMEOUT_MS * MS; /* it scans */
        }
        if (now_ns >= job->deadline_ns) {
            abandon_late(repository, job);
        } else if (job->deadline_ns < next_ns) {
            next_ns = job->deadline_ns;
        }
    }
    return next_ns;
}

/* Threads are started when a place becomes free, too. Without any thread the supervisor itself
 * runs the jobs. */
static void keep_threads(struct repository *repository) {
    struct changes *changes = &repository->changes;
    while (find_runnable(changes) && !ensure_thread(repository) && !is_ending(repository)) {
        job_execute(repository, find_runnable(changes));
    }
}

/* Calls on_loaded when the loads of the start are done. Returns: whether they are. */
static bool finish_start(struct repository *repository, bool finished) {
    if (finished || atomic_load_explicit(&repository->n_start_pending, memory_order_acquire) > 0) {
        return finished;
    }
    if (repository->on_loaded) {
        lock_release(&repository->lock);
        repository->on_loaded(repository->on_loaded_user);
        lock_acquire(&repository->lock);
    }
    return true;
}

/* Queues the scan of the start, or its loads when repository_scan was called. */
static void begin_start(struct repository *repository) {
    if (is_ending(repository)) {
        return;
    }
    if (atomic_load(&repository->scanned)) {
        enqueue_start(repository);
        return;
    }
    enqueue(repository, must_have(job_new(JOB_START, STR("")), "looking for models"));
}

static void supervisor_main(void *arg) {
    struct repository *repository = arg;
    bool started = false;
    lock_acquire(&repository->lock);
    repository->changes.next_poll_ns = clock_now_ns() + repository->repository_poll_ns;
    begin_start(repository);
    while (!is_ending(repository)) {
        started = finish_start(repository, started);
        keep_threads(repository);
        uint64_t now_ns = clock_now_ns();
        uint64_t until_ns = abandon_all_late(repository, now_ns);
        if (may_poll(repository) &&
            (repository->changes.poll_now || now_ns >= repository->changes.next_poll_ns)) {
            begin_poll(repository);
            continue;
        }
        if (may_poll(repository) && repository->changes.next_poll_ns < until_ns) {
            until_ns = repository->changes.next_poll_ns;
        }
        if (!is_ending(repository) && (started || repository->n_start_pending > 0)) {
            struct lock_cond *supervise = &repository->changes.supervise;
            if (until_ns == UINT64_MAX) {
                lock_cond_wait(&repository->lock, supervise);
            } else {
                lock_cond_wait_until_ns(&repository->lock, supervise, until_ns);
            }
        }
    }
    lock_release(&repository->lock);
}

enum status repository_load_start(struct repository *repository, void (*done)(void *user),
                                  void *user, struct error *err) {
    struct changes *changes = &repository->changes;
    repository->on_loaded = done;
    repository->on_loaded_user = user;
    changes->starting = !atomic_load(&repository->scanned);
    if (repository->model_control_mode == REPOSITORY_EXPLICIT) {
        override_remove_stale();
    }
    if (retirement_start(repository, err) != ST_OK) {
        return err->status;
    }
    int rc = uv_thread_create(&changes->supervisor, supervisor_main, repository);
    if (rc != 0) {
        return error_set(err, ST_IO, "cannot start the loader thread: %s", thread_start_error(rc));
    }
    changes->has_supervisor = true;
    return ST_OK;
}

void repository_poll_now(struct repository *repository) {
    lock_acquire(&repository->lock);
    repository->changes.poll_now = true;
    lock_cond_broadcast(&repository->changes.supervise);
    lock_release(&repository->lock);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void on_done(struct worker_msg *msg) {
    struct repository_change *change = CONTAINER_OF(msg, struct repository_change, msg);
    change->done(change);
}

static enum status check_name(struct str name, struct error *err) {
    char quoted[QUOTED_NAME_BYTES];
    return model_name_is_valid(name)
               ? ST_OK
               : error_set(err, ST_BAD_REQUEST, "no model can have the name %s",
                           quote_name(name, quoted));
}

/* These messages begin as the reference server's do: clients compare them. */
static enum status check_loaded_name(struct str name, struct error *err) {
    static const char space[] = " \t\n\r\f\v";
    size_t n_blank = 0;
    while (n_blank < name.len && memchr(space, name.ptr[n_blank], sizeof(space) - 1)) {
        n_blank++;
    }
    if (n_blank == name.len) {
        return error_set(err, ST_BAD_REQUEST,
                         "Model name cannot be empty. Please enter a valid name to deploy.");
    }
    return check_name(name, err) == ST_OK
               ? ST_OK
               : error_prefix(err, "model name must not contain path traversal characters");
}

static enum status check_change(const struct repository *repository,
                                const struct repository_change *change, struct error *err) {
    if (change->action == REPOSITORY_SCAN) {
        return ST_OK;
    }
    if (repository->model_control_mode != REPOSITORY_EXPLICIT) {
        return error_set(err, ST_NOT_READY,
                         "explicit model load / unload is not allowed if polling is enabled: "
                         "only with --model-control-mode explicit");
    }
    return change->action == REPOSITORY_LOAD ? check_loaded_name(change->model, err)
                                             : check_name(change->model, err);
}

void changes_unload(struct repository *repository, struct str name) {
    lock_assert_held(&repository->lock);
    changes_cancel(repository, name);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    if (model_slot) {
        unload_model_slot(repository, model_slot);
    }
}

bool changes_concern(const struct repository *repository, struct str name) {
    return has_load(&repository->changes.queue, name) ||
           has_load(&repository->changes.running, name);
}

bool changes_load_found(struct repository *repository, struct str name) {
    struct changes *changes = &repository->changes;
    bool busy = find_load(&changes->queue, name) || find_load(&changes->running, name);
    struct job *job = busy || is_ending(repository) ? NULL : job_new(JOB_LOAD, name);
    if (job) {
        job->occasion = LOAD_FOUND;
        enqueue(repository, job);
    }
    return job != NULL;
}

static void unload(struct repository *repository, const struct repository_change *change) {
    const struct model_slot *model_slot =
        model_slot_find(repository_name_table(repository), change->model);
    const struct model *model = model_slot ? model_slot->serving : NULL;
    changes_unload(repository, change->model);
    if (model && change->unload_dependents) {
        ensembles_unload_members(repository, model); /* it is kept until it is closed */
    }
}

/* A model that is being registered is unloaded by cancelling that. */
static enum status unregister(struct repository *repository, struct str name, struct error *err) {
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    const struct job *load = find_any_load(&repository->changes, name);
    char quoted[QUOTED_NAME_BYTES];
    if (!(model_slot && model_slot_is_registered(model_slot)) && !(load && load->directory)) {
        return error_set(err, ST_UNKNOWN_MODEL, "model %s is not loaded", quote_name(name, quoted));
    }
    changes_cancel(repository, name);
    registered_remove(repository, name);
    return ST_OK;
}

/* Loads of the model that have not ended are cancelled: their result would have the version. */
static enum status unload_version(struct repository *repository,
                                  const struct repository_change *change, struct error *err) {
    struct model_slot *model_slot =
        model_slot_find(repository_name_table(repository), change->model);
    changes_cancel(repository, change->model);
    return !model_slot || unload_model_version(repository, model_slot, change->version)
               ? ST_OK
               : error_no_memory(err, "the table of models");
}

/* Queues the change as a job, or answers it at once. The lock is held. */
static enum status change_begin(struct repository *repository, struct repository_change *change,
                                bool *queued, struct error *err) {
    struct changes *changes = &repository->changes;
    bool load = change->action == REPOSITORY_LOAD;
    if (is_ending(repository)) {
        return error_set(err, ST_NOT_READY, "the server is being stopped");
    }
    if (change->action == REPOSITORY_UNLOAD && changes->starting) {
        return error_set(err, ST_NOT_READY, "the model repositories are still being scanned");
    }
    if (change->action == REPOSITORY_UNLOAD && change->unregister) {
        return unregister(repository, change->model, err);
    }
    if (change->action == REPOSITORY_UNLOAD && change->version > 0) {
        return unload_version(repository, change, err);
    }
    if (change->action == REPOSITORY_UNLOAD) {
        unload(repository, change);
        return ST_OK;
    }
    if (!load && (changes->n_late_scans > 0 || changes->starting)) {
        return ST_OK; /* the directories do not answer, or not yet */
    }
    struct job *next_scan = load ? NULL : find_scan(&changes->queue);
    if (next_scan) {
        STAILQ_INSERT_TAIL(&next_scan->joined, change, link);
        *queued = true;
        return ST_OK;
    }
    if (load && changes->n_abandoned >= REPOSITORY_MAX_LOADS) {
        return error_set(err, ST_NOT_READY,
                         "%zu loads that were cancelled or took too long have not ended yet",
                         changes->n_abandoned);
    }
    struct job *job = job_new(load ? JOB_LOAD : JOB_SCAN, load ? change->model : STR(""));
    if (job && load && change->directory) {
        job->directory = arena_dup(job->arena, str_of(change->directory)).ptr;
    }
    if (!job || (load && change->directory && !job->directory)) {
        arena_free(job ? job->arena : NULL);
        return error_no_memory(err, "the model");
    }
    job->occasion = LOAD_REQUESTED;
    job->change = change;
    *queued = true;
    if (!enqueue(repository, job)) {
        TAILQ_REMOVE(&changes->queue, job, link);
        error_set(&job->error, ST_NOT_READY,
                  "no thread can be started to load models (ulimit -u, pids.max of the control "
                  "group)");
        *err = job->error;
        job_free(repository, job);
    }
    return ST_OK;
}

void repository_change(struct repository *repository, struct repository_change *change) {
    bool queued = false;
    struct error err = {.status = ST_OK};
    change->msg = (struct worker_msg){.run = on_done};
    change->error.status = ST_OK;
    bool unload = change->action == REPOSITORY_UNLOAD;
    if (check_change(repository, change, &err) == ST_OK) {
        lock_acquire(&repository->lock);
        (void)change_begin(repository, change, &queued, &err); /* the result is in `err` */
        lock_release(&repository->lock);
    }
    if (queued && err.status != ST_OK) {
        log_event(LOG_WARNING, "a load was refused", LOG_CSTR("reason", err.text));
    }
    if (unload && err.status == ST_OK && repository->on_state_changed) {
        repository->on_state_changed(repository->on_state_changed_user);
    }
    if (!queued) {
        change->error = err;
        worker_post(change->worker, &change->msg);
    }
}

/* ---- start and stop -------------------------------------------------------------------------- */

void changes_init(struct repository *repository, const struct repository_options *options) {
    struct changes *changes = &repository->changes;
    changes->max_loads = options->model_load_thread_count;
    changes->load_timeout_ns = options->model_load_timeout_ns;
    assert(changes->max_loads >= 1 && changes->max_loads <= REPOSITORY_MAX_LOADS);
    lock_cond_init(&changes->work);
    lock_cond_init(&changes->supervise);
    TAILQ_INIT(&changes->queue);
    TAILQ_INIT(&changes->running);
}

void changes_drain(struct repository *repository) {
    struct changes *changes = &repository->changes;
    struct job *job;
    lock_acquire(&repository->lock);
    while ((job = TAILQ_FIRST(&changes->queue))) {
        TAILQ_REMOVE(&changes->queue, job, link);
        error_set(&job->error, ST_NOT_READY, "the server is being stopped");
        if (job->prepared) { /* an ensemble that waits for its members */
            drop_prepared(job);
        }
        job_free(repository, job); /* a model of the start is its slot's */
    }
    TAILQ_FOREACH(job, &changes->running, link) {
        atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
    }
    lock_cond_broadcast(&changes->work);
    lock_cond_broadcast(&changes->supervise);
    lock_release(&repository->lock);
}

void changes_stop(struct repository *repository) {
    struct changes *changes = &repository->changes;
    if (changes->has_supervisor) { /* it starts threads */
        uv_thread_join(&changes->supervisor);
        changes->has_supervisor = false;
    }
    lock_acquire(&repository->lock);
    changes->stopping = true;
    lock_cond_broadcast(&changes->work);
    lock_release(&repository->lock);
    for (size_t i = 0; i < changes->n_threads; i++) {
        uv_thread_join(&changes->threads[i]);
    }
    changes->n_threads = 0;
}

void changes_fini(struct repository *repository) {
    lock_cond_fini(&repository->changes.work);
    lock_cond_fini(&repository->changes.supervise);
}
