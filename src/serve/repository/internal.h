/* Private members of the repository, for its source files.
 *
 * Workers read a model through its published view, which is immutable: a pointer in its model slot
 * is swapped. A new name swaps the name table in the same way. The old snapshot is freed when a
 * quiescent mark has passed through every worker's loop, because no worker uses a snapshot across
 * loop iterations (names.c). Everything else is under `lock`. */
#ifndef SLUICE_SERVE_REPOSITORY_INTERNAL_H
#define SLUICE_SERVE_REPOSITORY_INTERNAL_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <uv.h>

#include "core/event/lock.h"
#include "core/os/cpus.h"
#include "serve/repository/model.h"
#include "serve/repository/repository.h"

/* First member of a snapshot that is freed after a quiescent mark. */
struct retired_snapshot {
    struct retired_snapshot *next;
};

/* The immutable snapshot of a model slot that workers read. */
struct published_view {
    struct retired_snapshot retired;
    const struct ready_list *ready; /* NULL: nothing is served */
    enum repository_phase phase;    /* of the model, when nothing is served */
    const char *reason;             /* for that phase; "" */
    size_t n_entries;               /* at least 1 */
    struct repository_entry entries[];
};

/* A model name and its state. It is kept as long as the repository. */
struct model_slot {
    struct str name;
    _Atomic(const struct published_view *) view;
    atomic_bool listed; /* the latest scan found its file or directory */

    /* under the lock */
    struct model_origin origin; /* `path` empty: loaded from a request only */
    struct model *serving;      /* NULL: none */
    struct model *loading;      /* being loaded; NULL: none */
    struct model *inactive;     /* last attempt that failed or was unloaded, its versions closed;
                               NULL: none */
    bool closing;               /* the unloaded model is unused and about to become `inactive` */
    bool load_at_start;         /* `loading` is loaded at start */
    bool failed;                /* counted in n_failed */
    uint64_t tried_fingerprint; /* polling: the fingerprint of the last attempt; 0: none */
};

/* All model slots, by name. */
struct name_table {
    struct retired_snapshot retired;
    struct model_slot **model_slots;
    size_t n;
    struct model_slot **slots; /* hash table of names, open addressing, at most half full */
    size_t slot_mask;
};

/* Models and snapshots that were replaced and are not freed yet. */
struct retirement {
    struct lock_cond work; /* something was added, a quiescent mark arrived, or shutdown */
    struct retired_snapshot *retired_snapshots; /* workers may still read them */
    struct model *unloading; /* their versions may still be referenced; views list them */
    struct model *closing;   /* unreferenced, but an old view may list them */
    size_t n_pending_marks;  /* quiescent marks under way */
    struct quiescent_mark *quiescent_marks; /* one message per worker */
    size_t n_quiescent_marks;
    uv_thread_t thread;
    bool has_thread;
    bool workers_stopped; /* the workers ended: marks are not needed */
    bool stopping;
};

/* The queue of requested changes. */
struct changes {
    struct lock_cond work; /* a change can start, or shutdown */
    TAILQ_HEAD(, repository_change) queue;
    struct str running[REPOSITORY_MAX_LOADS]; /* names of models that are being changed */
    size_t n_running;
    size_t n_queued;
    size_t n_waiting; /* idle threads */
    uv_thread_t threads[REPOSITORY_MAX_LOADS];
    size_t n_threads;
    size_t max_threads;
};

struct repository {
    struct arena *arena;    /* the main thread's during repository_new, constant afterwards */
    struct model_list list; /* models found at start, and the directories to scan again */
    struct lock backends_lock;
    uint64_t default_max_batch_size;
    uint64_t max_queue_size;
    uint64_t max_output_size;
    struct response_cache *cache; /* NULL: none */
    bool strict_readiness;
    enum status (*on_version_opened)(void *user, struct model_version *version, struct error *err);
    void *on_version_opened_user;
    void (*on_state_changed)(void *user);
    void *on_state_changed_user;
    enum repository_control model_control_mode;
    uint64_t repository_poll_ns;
    struct cpus cpus;

    _Atomic(const struct name_table *) name_table;
    struct lock lock;
    struct retirement retirement;
    struct changes changes;
    struct lock_cond poll; /* signalled for an early poll and on shutdown */
    bool poll_now;         /* poll without waiting; under lock */

    atomic_size_t n_start_pending; /* models of the start not loaded yet */
    atomic_size_t n_failed;        /* models of the start with a failed version */
    atomic_size_t n_busy;          /* running changes and polls */
    atomic_bool draining;
    atomic_bool stopping;

    uv_thread_t loader; /* the main thread's */
    bool has_loader;
    bool stopped;
    void (*on_loaded)(void *user);
    void *on_loaded_user;
};

static inline const struct name_table *repository_name_table(const struct repository *repository) {
    return atomic_load_explicit(&repository->name_table, memory_order_acquire);
}

/* ---- names.c: name table and retirement ------------------------------------------------------ */

/* Returns: NULL when there is none. Takes no lock. */
struct model_slot *model_slot_find(const struct name_table *name_table, struct str name);
/* Returns: the slot of that name, added if necessary; NULL when out of memory. The lock is held. */
struct model_slot *model_slot_get(struct repository *repository, struct str name);
/* Records where the model was found. The lock is held. Returns: false when out of memory. */
bool model_slot_set_origin(struct model_slot *model_slot, const struct model_origin *origin);
/* Creates the first name table, with a slot per listed model. Returns: ST_NO_MEMORY. */
enum status name_table_init(struct repository *repository, struct error *err) SLUICE_MUST_USE;
/* Called after all threads ended. */
void name_table_free(struct repository *repository);

/* ---- published.c: published views ------------------------------------------------------------ */

/* Publishes a new view of the slot; when memory is out the old one stays. The lock is held.
 * Returns: false when out of memory. */
bool model_slot_publish(struct repository *repository, struct model_slot *model_slot);

/* Frees the snapshot after a quiescent mark. The lock is held. */
void retire_snapshot(struct repository *repository, struct retired_snapshot *retired);
/* The same for a model that was its slot's `inactive`; NULL is allowed. */
void retire_inactive(struct repository *repository, struct model *model);
/* The same for a model that its slot no longer serves: its versions are closed when the last
 * reference is dropped. The caller publishes the slot afterwards. */
void retire_model(struct repository *repository, struct model_slot *model_slot,
                  struct model *model);
/* Undoes retire_model before the slot is published. */
void retire_cancel(struct repository *repository, struct model *model);
/* Allocates the quiescent marks. Returns: ST_NO_MEMORY. */
enum status retirement_init(struct repository *repository, const struct repository_options *options,
                            struct error *err) SLUICE_MUST_USE;
/* Called after the workers ended: stops the reclaiming thread and the retired versions. */
void retirement_stop(struct repository *repository);
/* Closes and frees everything that is retired. */
void retirement_free(struct repository *repository);

/* ---- load.c: loading ------------------------------------------------------------------------- */

/* Why a model is loaded. The first two serve the versions that load, if the model serves nothing
 * yet; otherwise all versions must load. */
enum load_occasion {
    LOAD_AT_START, /* counts for readiness */
    LOAD_FOUND,
    LOAD_REQUESTED,
};

/* Makes a model from that origin and the change's configuration and files. The lock is not held.
 * Returns: NULL when out of memory; else the model, whose `error` is set if it cannot be loaded. */
struct model *load_prepare(const struct model_origin *origin,
                           const struct repository_change *change, struct error *err);
/* Loads the prepared model and serves it in place of its slot's current one. Owns: takes `model`.
 * Returns: ST_BAD_MODEL with the reasons; the current model is served on then. Thread: any that may
 * block; one at a time per model. */
enum status load_model(struct repository *repository, struct model *model,
                       enum load_occasion occasion, struct error *err);
/* Stops serving the slot's model. The lock is held. */
void unload_model_slot(struct repository *repository, struct model_slot *model_slot);
/* Joins the loader thread, if there is one. */
void repository_load_join(struct repository *repository);

/* ---- load.c: scanning and polling ------------------------------------------------------------ */

/* Scans the directories of models: new names get a slot, missing ones become unlisted. Thread: any
 * that may block. */
void poll_scan(struct repository *repository);
/* Finds where a model of that name is now. Returns: false when there is none. */
bool poll_find(struct repository *repository, struct str name, struct model_origin *out,
               struct arena *arena);

/* ---- messages -------------------------------------------------------------------------------- */

/* "1, 3" */
enum { SERVED_TEXT_BYTES = 128 };
const char *ready_list_print(const struct ready_list *ready, char out[SERVED_TEXT_BYTES]);

#endif
