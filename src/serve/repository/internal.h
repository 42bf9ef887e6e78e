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
#include "serve/repository/override.h"
#include "serve/repository/repository.h"
#include "serve/scheduler/shared_budget.h"

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
    const char *missing;            /* why an ensemble is not ready, though it is served; NULL: it
                                       is. In the view's own memory */
    const char *registered_url;     /* of a registered model; NULL: it is none. The same */
    size_t n_entries;               /* at least 1 */
    struct repository_entry entries[];
};

/* A model name and its state. It is kept until forget_names removes it. */
struct model_slot {
    struct model_slot *next_forgotten;
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
    bool failed;                /* at the start, and not mended */
    bool counted;               /* in n_failed */
    unsigned n_missing;         /* polls in a row that did not find it */
    uint64_t found_by;          /* the last scan that found it: n_scans */
    bool walking;               /* a poll, maybe an abandoned one, looks at its files */
    size_t n_retired;           /* models that it has retired, and that are not closed yet */
    uint64_t unused_since;      /* repository->n_unused, when its model was unloaded or it was no
                                   longer listed */
    uint64_t tried_fingerprint; /* polling: the fingerprint of the last attempt; 0: none */
    /* ensembles.c */
    LIST_ENTRY(model_slot) ensemble_link;
    bool is_ensemble;      /* linked: it serves, or failed to load, an ensemble */
    bool loaded_as_member; /* for an ensemble only, and not by its own name */
    /* registered.c. Empty: not registered */
    struct str registered_with; /* its own name, or that of the ensemble that it came with */
    struct str registered_url;
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
    struct model *unloading;      /* their versions may still be referenced; views list them */
    struct model *closing;        /* unreferenced, but an old view may list them */
    struct model_slot *forgotten; /* an old table may have them */
    size_t n_pending_marks;       /* quiescent marks under way */
    struct quiescent_mark *quiescent_marks; /* one message per worker */
    size_t n_quiescent_marks;
    uv_thread_t thread;
    bool has_thread;
    bool workers_stopped; /* the workers ended: marks are not needed */
    bool stopping;
};

/* A directory of models that is scanned again, list.roots[i]. */
struct root_state {
    _Atomic uint64_t device; /* where its models were last found */
    bool unavailable;        /* its missing models are kept; under the lock, as the next */
    uint64_t log_next_ns;
};

/* Where the models of the start are looked for (start.c). */
struct start {
    const char *const *paths; /* these texts are the repository's */
    size_t n_paths;
    const struct repository_params *path_params;
    const char *const *model_repositories;
    size_t n_model_repositories;
    const char *const *load_models;
    size_t n_load_models;
    struct error error; /* why the scan failed; ST_OK: it did not. Under the lock */
};

/* Loads, scans, abandoned loads that have not ended, and a few more. */
enum { REPOSITORY_MAX_THREADS = 2 * REPOSITORY_MAX_LOADS + 4 };

/* Loads and scans, and their threads (changes.c). */
TAILQ_HEAD(job_list, job);
struct changes {
    struct lock_cond work; /* a job can start, or shutdown */
    struct job_list queue;
    struct job_list running;
    size_t n_loading;    /* running loads that are not abandoned */
    size_t n_abandoned;  /* running jobs whose result is discarded */
    size_t n_late_scans; /* those of them that are scans */
    size_t n_waiting;    /* idle threads */
    size_t n_starting;   /* threads that have not looked for a job yet */
    bool stopping;       /* the threads end */
    uv_thread_t threads[REPOSITORY_MAX_THREADS];
    size_t n_threads;
    size_t max_loads;
    uint64_t load_timeout_ns;   /* 0: none */
    struct lock_cond supervise; /* a job began or ended, a poll is requested, or shutdown */
    uv_thread_t supervisor;
    bool has_supervisor;
    bool starting; /* the scan of the start is queued or runs: no other job does */
    bool polling;  /* a poll is queued or runs */
    bool poll_now; /* poll without waiting */
    uint64_t next_poll_ns;
};

/* A version that is being opened. */
struct running_load {
    TAILQ_ENTRY(running_load) link;
    const struct model *model;
    uint64_t number, began_ns;
};

struct repository {
    struct arena *arena; /* the main thread's during repository_new, constant afterwards */
    struct start start;
    /* Of the scan of the start, constant afterwards: the models, and the directories to scan again.
     * Only `backends` is set before; no other job runs until then. */
    struct root_state *roots;
    struct model_list list;
    uint64_t n_scans;    /* that were listed; under the lock */
    uint64_t n_unused;   /* how often a slot was no longer used; under the lock */
    atomic_bool scanned; /* lookups say NOT_READY before, and when it failed */
    struct lock backends_lock;
    struct config_rules config_rules;
    uint64_t model_load_retry_count;
    const char *const *op_library_dirs;
    size_t n_op_library_dirs;
    const struct ensemble_ops *ensemble_ops; /* NULL: none */
    const struct repository_backend_param *backend_params;
    size_t n_backend_params;
    uint64_t default_max_batch_size;
    uint64_t max_queue_size;
    const struct latency_options *latencies;
    const struct host_policies *host_policies;
    uint64_t slow_reader_timeout_ns; /* 0: none; enforced by partial_response_send */
    uint64_t max_output_size;
    struct response_cache *cache; /* NULL: none */
    struct shared_budget state_budget;
    bool strict_readiness;
    enum status (*on_version_opened)(void *user, struct model_version *version, struct error *err);
    void *on_version_opened_user;
    bool programs_from_requests;
    enum status (*print_config)(struct arena *arena, const struct model_config *config,
                                struct str *out, struct error *err);
    const struct sluice_calls *calls;
    enum status (*on_scanned)(void *user, struct error *err);
    void *on_scanned_user;
    void (*on_state_changed)(void *user);
    void *on_state_changed_user;
    enum repository_control model_control_mode;
    uint64_t repository_poll_ns;
    struct cpus cpus;

    _Atomic(const struct name_table *) name_table;
    struct lock lock;
    struct retirement retirement;
    struct changes changes;
    LIST_HEAD(, model_slot) ensembles;        /* under the lock */
    TAILQ_HEAD(, running_load) running_loads; /* in the order in which they began; under the lock */

    size_t n_start;                /* models of the start; under the lock */
    atomic_size_t n_start_pending; /* the scan of the start, and its models, not done yet */
    atomic_size_t n_failed;        /* models of the start with a failed version, without those that
                                      are in two directories: as Triton's, they don't make it
                                      unready */
    atomic_int n_unavailable;      /* directories */
    atomic_size_t n_busy;          /* queued and running jobs */
    atomic_bool draining;
    atomic_bool stopping;

    bool stopped; /* the main thread's */
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
/* Returns: as repository_find, of a slot that is known; takes no reference on *out. Takes no
 * lock. */
enum status model_slot_pick(const struct model_slot *model_slot, struct str version_text,
                            struct model_version **out, struct error *err) SLUICE_MUST_USE;
/* Records where the model was found. The lock is held. Returns: false when out of memory. */
bool model_slot_set_origin(struct model_slot *model_slot, const struct model_origin *origin);
/* Copies `with` to a text of the slot. Returns: false when out of memory, never for an empty
 * one. */
bool model_slot_set_text(struct str *text, struct str with);
/* The slot may be no longer used. The lock is held. */
void model_slot_note_unused(struct repository *repository, struct model_slot *model_slot);
/* Of the names that no directory has and of which nothing is loaded, a limited number is kept: the
 * latest. Removes the slots of others. The lock is held. */
void forget_names(struct repository *repository);
/* Makes a table with a slot per listed model, without views, and sorts the list by name. Returns:
 * NULL when out of memory. */
struct name_table *name_table_make(struct model_list *list);
/* Frees the slots, too. No thread uses them. NULL is allowed. */
void name_table_free(struct name_table *name_table);

/* ---- start.c: the models of the start -------------------------------------------------------- */

/* The result of the scan. */
struct start_found {
    struct model_list list;
    struct root_state *roots;
};

/* Keeps what the scan needs of the options, and makes an empty table of names. Returns:
 * ST_BAD_CONFIG for settings that exclude each other. */
enum status start_init(struct repository *repository, const struct repository_options *options,
                       struct error *err) SLUICE_MUST_USE;
/* Looks for models. Returns: ST_BAD_CONFIG. Owns: start_discard, also after an error. Thread: any
 * that may block. */
enum status start_scan(struct repository *repository, struct start_found *found,
                       struct error *err) SLUICE_MUST_USE;
/* Makes the found models known. The lock is held. Returns: ST_BAD_CONFIG when a model to be loaded
 * is not among them. Owns: takes what was found. */
enum status start_publish(struct repository *repository, struct start_found *found,
                          struct error *err) SLUICE_MUST_USE;
void start_discard(struct start_found *found);
/* Records why the scan failed; the repository never gets ready. The lock is held. */
void start_fail(struct repository *repository, const struct error *why);

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
/* Allocates the quiescent marks. */
void retirement_init(struct repository *repository, const struct repository_options *options);
/* Starts the reclaiming thread, where the workers are known; otherwise the first retired model
 * does. Returns: ST_IO. */
enum status retirement_start(struct repository *repository, struct error *err) SLUICE_MUST_USE;
/* Called after the workers ended: stops the reclaiming thread and the retired versions. */
void retirement_stop(struct repository *repository);
/* Closes and frees everything that is retired. */
void retirement_free(struct repository *repository);

/* ---- ensembles.c: ensembles and their members ------------------------------------------------ */

/* Completes the ensemble's configuration from its members, which are served. Returns: ST_NOT_READY
 * with the reason where one of them is not; ST_BAD_MODEL. Thread: any; the lock is not held. */
enum status ensemble_complete(struct repository *repository, const struct model *model,
                              struct model_config *config, struct error *err) SLUICE_MUST_USE;
/* Returns: why the ensemble that the slot serves is not ready, in `err`; ST_OK: it is, or the slot
 * serves none. The lock is held. */
enum status ensemble_check_members(const struct repository *repository,
                                   const struct model_slot *model_slot, struct error *err);
/* The slot was published: looks again at the ensembles that it is a member of. Those that failed to
 * load for want of members are loaded now that this one is served. The lock is held. */
void ensembles_note_published(struct repository *repository, struct model_slot *model_slot);
/* Unloads the members of an unloaded ensemble that were loaded for it and that no other one uses,
 * and theirs. The lock is held. */
void ensembles_unload_members(struct repository *repository, const struct model *model);
/* The slot is freed. The lock is held. */
void ensembles_forget(struct model_slot *model_slot);

/* ---- registered.c: directories that requests register ---------------------------------------- */

/* Returns: whether the slot's own name was registered, not that of an ensemble. The lock is
 * held. */
bool model_slot_is_registered(const struct model_slot *model_slot);
/* Registers the directory, or model file, under the name; *added: whether it was. Returns:
 * ST_MODEL_EXISTS; ST_BAD_CONFIG; ST_NOT_READY when `*cancelled` was set. Thread: any that may
 * block; the lock is not held. */
enum status registered_add(struct repository *repository, struct str name, const char *path,
                           const atomic_bool *cancelled, bool *added,
                           struct error *err) SLUICE_MUST_USE;
/* Unloads what was registered under the name, and forgets where it is. Loads of the name are not
 * cancelled. The lock is held. */
void registered_remove(struct repository *repository, struct str name);

/* ---- load.c: loading ------------------------------------------------------------------------- */

/* Why a model is loaded. The first two serve the versions that load, if the model serves nothing
 * yet; otherwise all versions must load. */
enum load_occasion {
    LOAD_AT_START, /* counts for readiness */
    LOAD_FOUND,
    LOAD_REQUESTED,
};

/* What a request gives in place of the model's directory. */
struct load_override {
    struct str config; /* JSON in place of config.pbtxt; ptr NULL: none */
    struct override_directory directory;
    uint64_t
        version; /* that version is loaded, and those that are served; 0: those of the policy */
};

/* Finds the model of that name (LOAD_REQUESTED: in the directories; LOAD_FOUND: where the latest
 * scan found it) and makes it, or sets *unchanged when LOAD_REQUESTED would change nothing. The
 * lock is not held. Returns: ST_UNKNOWN_MODEL. */
enum status load_prepare(struct repository *repository, struct str name,
                         const struct load_override *override, enum load_occasion occasion,
                         const atomic_bool *cancelled, struct model **out, bool *unchanged,
                         struct error *err);
/* Puts the prepared model of the start in place of `*loading`, which names the model until its
 * files are read on a loading thread, and publishes it. The lock is held. */
void load_replace_start(struct repository *repository, struct model **loading,
                        struct model *prepared);
/* Loads the prepared model and serves it in place of its slot's current one. Owns: takes *model,
 * which is set to NULL, under the lock, when the model is freed. Returns: ST_BAD_MODEL with the
 * reasons, or ST_NOT_READY, ST_NO_MEMORY, ST_OVERLOADED where the server lacks what it takes; the
 * current model is served on then. Thread: any that may block; one at a time per
 * model, apart from abandoned ones. */
enum status load_model(struct repository *repository, struct model **owned,
                       enum load_occasion occasion, struct error *err);
/* Records that the load of that model has failed with `why`, or that it was unloaded, while
 * load_prepare (`model` NULL) or load_model still runs: their result is discarded then. The lock is
 * held. */
void load_abandon(struct repository *repository, struct str name, struct model *model,
                  enum load_occasion occasion, bool unloaded, const struct error *why);
/* Stops serving the slot's model. The lock is held. */
void unload_model_slot(struct repository *repository, struct model_slot *model_slot);
/* Stops serving one version of it; the last one is the model. The lock is held. Returns: false when
 * out of memory. */
bool unload_model_version(struct repository *repository, struct model_slot *model_slot,
                          uint64_t number);

/* ---- changes.c: what runs when --------------------------------------------------------------- */

void changes_init(struct repository *repository, const struct repository_options *options);
/* Refuses what is queued; afterwards nothing more begins. */
void changes_drain(struct repository *repository);
/* Joins all threads. */
void changes_stop(struct repository *repository);
void changes_fini(struct repository *repository);
/* Queues a load of a model that polling found, or whose members have come, unless one is queued or
 * running. The lock is held.
 * Returns: whether it was queued. */
bool changes_load_found(struct repository *repository, struct str name);
/* Cancels the loads of the model. The lock is held. */
void changes_cancel(struct repository *repository, struct str name);
/* Cancels the loads of the model and stops serving it. The lock is held. */
void changes_unload(struct repository *repository, struct str name);
/* Returns: whether a load of the model is queued or running, abandoned ones included. The lock is
 * held. */
bool changes_concern(const struct repository *repository, struct str name);

/* ---- load.c: scanning and polling ------------------------------------------------------------ */

/* Scans the directories of models: new names get a slot, missing ones become unlisted. Thread: any
 * that may block. */
void poll_scan(struct repository *repository);
/* Returns: the device of a directory of models; 0: unknown. */
uint64_t root_device(const char *path);
/* Scans the directories, queues loads of models whose files changed, and unloads models whose files
 * were removed. `watch` hears of each model; when it says so the poll ends. Thread: any that may
 * block; one at a time, apart from abandoned ones. */
struct poll_watch {
    /* The lock is held. `name`: whose files are looked at from now on; ptr NULL: none. Returns:
     * false when the poll was abandoned: another one goes on with the other models. */
    bool (*on_model)(void *user, struct str name);
    void *user;
};
void poll_models(struct repository *repository, const struct poll_watch *watch);

/* ---- messages -------------------------------------------------------------------------------- */

/* "1, 3" */
enum { SERVED_TEXT_BYTES = 128 };
const char *ready_list_print(const struct ready_list *ready, char out[SERVED_TEXT_BYTES]);

#endif
