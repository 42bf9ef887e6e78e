/* The repository's own members, for the files that share them: repository*.c.
 *
 * What readers see of a model is its view, which never changes: a pointer in its shelf is swapped.
 * The table of shelves is swapped in the same way when there is a new name. What was swapped out is
 * freed when every worker has come through its loop once since then, because no worker keeps it
 * across that (retire.c). Everything else is under `lock`. */
#ifndef SLUICE_SERVE_REPOSITORY_INTERNAL_H
#define SLUICE_SERVE_REPOSITORY_INTERNAL_H

#include <stdatomic.h>
#include <uv.h>

#include "core/event/lock.h"
#include "core/os/cpus.h"
#include "serve/repository/model.h"
#include "serve/repository/repository.h"

/* In front of what is freed when nobody can see it any more. */
struct retired_snapshot {
    struct retired_snapshot *next;
};

/* What readers see of a model. */
struct published_view {
    struct retired_snapshot retired;
    const struct ready_list *ready; /* NULL: nothing is served */
    enum repository_phase phase;    /* of the model, when nothing is */
    const char *reason;             /* why then; "" */
    size_t n_entries;               /* at least 1 */
    struct repository_entry entries[];
};

/* A name, and what is known of it. It stays as long as the repository. */
struct model_slot {
    struct str name;
    _Atomic(const struct published_view *) view;
    atomic_bool listed; /* what it was found as was there when somebody looked last */

    /* under the lock */
    struct model_origin origin; /* `path` empty: it has come with a request only */
    struct model *serving;      /* NULL: none */
    struct model *loading;      /* being loaded; NULL: none */
    struct model *inactive; /* the last try, when it failed or was unloaded; none of its versions is
                           open; NULL: none */
    bool closing;           /* what was unloaded is held by nobody, and about to be `past` */
    bool load_at_start;     /* `coming` is to be loaded by the start */
    bool failed;            /* it counts in n_failed */
    uint64_t seen;          /* polling: the fingerprint that was tried last; 0: none */
};

/* All shelves, by name. */
struct name_table {
    struct retired_snapshot retired;
    struct model_slot **model_slots;
    size_t n;
    struct model_slot **slots; /* by the hash of the name; open addressing, at most half full */
    size_t slot_mask;
};

/* What is no longer served, and what is no longer seen. */
struct retirement {
    struct lock_cond work;         /* something was added, a worker has come through, or the end */
    struct retired_snapshot *seen; /* may still be seen */
    struct model *unloading;       /* models whose versions may still be held; views tell of them */
    struct model *closing;         /* held by nobody; may still be seen */
    size_t n_pending_marks;        /* workers that have yet to come through */
    struct quiescent_mark *quiescent_marks; /* a message to each worker */
    size_t n_quiescent_marks;
    uv_thread_t thread;
    bool has_thread;
    bool workers_stopped; /* the workers have ended */
    bool stopping;
};

/* What was asked for. */
struct changes {
    struct lock_cond work; /* a change may be begun, or the end */
    struct repository_change *first, *last;
    struct str running[REPOSITORY_MAX_LOADS]; /* models being changed */
    size_t n_running;
    size_t n_queued;
    size_t n_waiting; /* threads */
    uv_thread_t threads[REPOSITORY_MAX_LOADS];
    size_t n_threads;
    size_t max_threads;
};

struct repository {
    struct arena *arena;    /* of main during repository_new, of nobody after it */
    struct model_list list; /* what was found at the start, and where to look again */
    struct lock backends_lock;
    uint64_t default_max_batch_size;
    uint64_t max_queue_size;
    struct response_cache *cache; /* NULL: there is none */
    bool strict_readiness;
    enum status (*on_version_opened)(void *user, struct model_version *version, struct error *err);
    void *on_version_opened_user;
    void (*on_state_changed)(void *user);
    void *on_state_changed_user;
    enum repository_control control;
    uint64_t poll_ns;
    struct cpus cpus;

    _Atomic(const struct name_table *) name_table;
    struct lock lock;
    struct retirement retirement;
    struct changes changes;
    struct lock_cond poll; /* the end of polling, or of the wait for the next time */
    bool poll_now;         /* polling: that wait is over, under lock */

    atomic_size_t n_start_pending; /* models of the start still to be loaded */
    atomic_size_t n_failed;        /* models of the start of which something could not be loaded */
    atomic_size_t n_busy;          /* changes and polls under way */
    atomic_bool draining;
    atomic_bool stopping;

    uv_thread_t loader; /* main's */
    bool has_loader;
    bool stopped;
    void (*on_loaded)(void *user);
    void *on_loaded_user;
};

static inline const struct name_table *repository_name_table(const struct repository *repository) {
    return atomic_load_explicit(&repository->name_table, memory_order_acquire);
}

/* ---- names.c: names --------------------------------------------------------------- */

/* Returns: NULL when there is none. Takes no lock. */
struct model_slot *model_slot_find(const struct name_table *name_table, struct str name);
/* The one of that name, made if need be. The lock is held. Returns: NULL when memory is out. */
struct model_slot *model_slot_get(struct repository *repository, struct str name);
/* It was found there (again). The lock is held. Returns: false when memory is out. */
bool model_slot_set_origin(struct model_slot *model_slot, const struct model_origin *origin);
/* Makes the first catalog: a shelf for each of the list's models. Returns: ST_NO_MEMORY. */
enum status name_table_init(struct repository *repository, struct error *err)
    __attribute__((warn_unused_result));
/* After everything else has ended. */
void name_table_free(struct repository *repository);

/* ---- published.c: what readers see ----------------------------------------------------- */

/* Makes a new view of what the shelf holds and shows it. Where there is no memory for it the old
 * one stays. The lock is held. Returns: false when memory is out. */
bool model_slot_publish(struct repository *repository, struct model_slot *model_slot);

/* Frees it when nobody can see it any more. The lock is held. */
void retire_snapshot(struct repository *repository, struct retired_snapshot *retired);
/* The same for a model that was its shelf's `past`; NULL is allowed. */
void retire_inactive(struct repository *repository, struct model *model);
/* The same for one that its shelf no longer serves: closes its versions when nobody holds them any
 * more. To be shown. */
void retire_model(struct repository *repository, struct model_slot *model_slot,
                  struct model *model);
/* Takes the last back, before it was shown. */
void retire_cancel(struct repository *repository, struct model *model);
/* Room for the messages to the workers. Returns: ST_NO_MEMORY. */
enum status retirement_init(struct repository *repository, const struct repository_options *options,
                            struct error *err) __attribute__((warn_unused_result));
/* The workers have ended: nobody looks any more. Waits until what can be closed is. */
void retirement_stop(struct repository *repository);
/* Closes and frees the rest. */
void retirement_free(struct repository *repository);

/* ---- load.c: from files to versions ----------------------------------------------- */

/* Who wants it. The first two take what can be loaded of a model of which nothing is served yet;
 * else it is all versions, or it has failed. */
enum load_occasion {
    LOAD_AT_START, /* readiness depends on it */
    LOAD_FOUND,
    LOAD_REQUESTED,
};

/* A model found there is to be loaded, with what came with the request. The lock is not held.
 * Returns: NULL when memory is out; *out->error may say what is wrong. */
struct model *load_prepare(const struct model_origin *origin,
                           const struct repository_change *change, struct error *err);
/* Loads what was prepared, and has it served by the shelf of its name in place of what is. Owns:
 * `model` is the repository's. Returns: ST_BAD_MODEL with the reasons, when it failed; then what
 * was served is. Thread: any that may block; one at a time for a model. */
enum status load_model(struct repository *repository, struct model *model,
                       enum load_occasion occasion, struct error *err);
/* Ends serving what the shelf has. The lock is held. */
void unload_model_slot(struct repository *repository, struct model_slot *model_slot);
/* Waits for the loader, if there is one. */
void repository_load_join(struct repository *repository);

/* ---- load.c: what is there now ---------------------------------------------------- */

/* Looks into the directories of models: new names get a shelf, those that went are no longer
 * listed.
 * Thread: any that may block. */
void poll_scan(struct repository *repository);
/* Where a model of that name is now. Returns: false when there is none. */
bool poll_find(struct repository *repository, struct str name, struct model_origin *out,
               struct arena *arena);

/* ---- for messages ---------------------------------------------------------------------------- */

/* "1, 3" */
enum { SERVED_TEXT_BYTES = 128 };
const char *ready_list_print(const struct ready_list *ready, char out[SERVED_TEXT_BYTES]);

#endif
