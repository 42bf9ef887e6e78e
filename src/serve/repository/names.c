/* The table of model names, and retirement: what was replaced is kept until no worker uses it. A
 * new name makes a new table, and the old one is retired. Names that no directory has, as clients
 * can load models by any name with files of their own, are removed when there are many.
 *
 * A worker uses a view or a table only within one loop iteration, unless it takes a reference on a
 * version. So when a quiescent mark that was sent after the replacement has passed through every
 * worker's loop, the old object is reachable through references only. A thread sends the marks and
 * closes models, because both take time.
 *
 *     served
 *       → unloading: not served, listed as "unloading", until marks passed and no reference is left
 *       → closing: not listed, until marks passed again
 *       → closed */
#include <stdlib.h>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/event/thread.h"
#include "serve/repository/internal.h"

struct model_slot *model_slot_find(const struct name_table *name_table, struct str name) {
    size_t slot = (size_t)fnv1a_of(name) & name_table->slot_mask;
    struct model_slot *model_slot = name_table->slots[slot];
    while (model_slot && !str_eq(model_slot->name, name)) {
        slot = (slot + 1) & name_table->slot_mask;
        model_slot = name_table->slots[slot];
    }
    return model_slot;
}

/* ---- name table ------------------------------------------------------------------------------ */

static struct model_slot *model_slot_new(struct str name) {
    struct model_slot *model_slot = calloc(1, sizeof(*model_slot) + name.len + 1);
    if (model_slot) {
        char *text = (char *)(model_slot + 1);
        memcpy(text, name.ptr, name.len);
        model_slot->name = str_make(text, name.len);
        model_slot->origin.path = STR("");
        model_slot->registered_with = model_slot->registered_url = STR("");
    }
    return model_slot;
}

/* An empty text is not allocated. */
static void slot_text_free(struct str text) {
    if (text.len > 0) {
        free((char *)text.ptr);
    }
}

static void model_slot_free(struct model_slot *model_slot) {
    if (model_slot) {
        free((void *)atomic_load(&model_slot->view));
        model_free(model_slot->serving); /* not loaded, or already closed */
        model_free(model_slot->loading);
        model_free(model_slot->inactive);
        slot_text_free(model_slot->origin.path);
        slot_text_free(model_slot->origin.other);
        slot_text_free(model_slot->registered_with);
        slot_text_free(model_slot->registered_url);
        free(model_slot);
    }
}

bool model_slot_set_text(struct str *text, struct str with) {
    if (!str_eq(*text, with)) {
        char *copy = with.len > 0 ? str_dup(with) : NULL;
        if (with.len > 0 && !copy) {
            return false;
        }
        slot_text_free(*text);
        *text = str_make(copy ? copy : "", with.len);
    }
    return true;
}

bool model_slot_set_origin(struct model_slot *model_slot, const struct model_origin *origin) {
    atomic_store_explicit(&model_slot->listed, true, memory_order_relaxed);
    if (!model_slot_set_text(&model_slot->origin.path, origin->path) ||
        !model_slot_set_text(&model_slot->origin.other, origin->other)) {
        return false;
    }
    model_slot->origin.name = model_slot->name;
    model_slot->origin.file_backend = origin->file_backend;
    model_slot->origin.params = origin->params;
    model_slot->origin.pinned = origin->pinned;
    return true;
}

/* Allocates an empty table for `n` slots. */
static struct name_table *name_table_new(size_t n) {
    size_t n_slots = 2;
    while (n_slots < 2 * n) {
        n_slots *= 2;
    }
    struct name_table *name_table =
        calloc(1, sizeof(*name_table) + (n + n_slots) * sizeof(name_table->model_slots[0]));
    if (name_table) {
        name_table->model_slots = (struct model_slot **)(void *)(name_table + 1);
        name_table->slots = name_table->model_slots + n;
        name_table->slot_mask = n_slots - 1;
    }
    return name_table;
}

/* Appends a slot; names are added in order. */
static void name_table_add(struct name_table *name_table, struct model_slot *model_slot) {
    name_table->model_slots[name_table->n++] = model_slot;
    size_t slot = (size_t)fnv1a_of(model_slot->name) & name_table->slot_mask;
    while (name_table->slots[slot]) {
        slot = (slot + 1) & name_table->slot_mask;
    }
    name_table->slots[slot] = model_slot;
}

/* A copy of the table with one more slot, in order of names. */
static struct name_table *name_table_with(const struct name_table *old,
                                          struct model_slot *model_slot) {
    struct name_table *name_table = name_table_new(old->n + 1);
    size_t i = 0;
    for (; name_table && i < old->n && str_compare(old->model_slots[i]->name, model_slot->name) < 0;
         i++) {
        name_table_add(name_table, old->model_slots[i]);
    }
    if (name_table) {
        name_table_add(name_table, model_slot);
    }
    for (; name_table && i < old->n; i++) {
        name_table_add(name_table, old->model_slots[i]);
    }
    return name_table;
}

struct model_slot *model_slot_get(struct repository *repository, struct str name) {
    lock_assert_held(&repository->lock);
    const struct name_table *old = repository_name_table(repository);
    struct model_slot *model_slot = model_slot_find(old, name);
    if (model_slot) {
        return model_slot;
    }
    model_slot = model_slot_new(name);
    struct name_table *name_table = model_slot ? name_table_with(old, model_slot) : NULL;
    if (!name_table || !model_slot_publish(repository, model_slot)) {
        model_slot_free(model_slot);
        free(name_table);
        return NULL;
    }
    atomic_store_explicit(&repository->name_table, name_table, memory_order_release);
    retire_snapshot(repository, (struct retired_snapshot *)(void *)old);
    return model_slot;
}

/* ---- forgetting names ------------------------------------------------------------------------ */

/* Names that no directory has, of which errors still say that they are not loaded. */
enum { MAX_UNUSED_NAMES = 256 };

void model_slot_note_unused(struct repository *repository, struct model_slot *model_slot) {
    model_slot->unused_since = ++repository->n_unused;
}

static bool is_unused(const struct repository *repository, const struct model_slot *model_slot) {
    return !atomic_load_explicit(&model_slot->listed, memory_order_relaxed) &&
           !model_slot->origin.pinned && !model_slot->serving && !model_slot->loading &&
           !model_slot->closing && !model_slot->failed && !model_slot->load_at_start &&
           !model_slot->walking && model_slot->n_retired == 0 &&
           !changes_concern(repository, model_slot->name);
}

static int compare_stamps(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Returns: `unused_since` of the first one that is kept; 0: all are, or memory is out. */
static uint64_t find_first_kept(const struct repository *repository) {
    const struct name_table *name_table = repository_name_table(repository);
    uint64_t *stamps = calloc(name_table->n + 1, sizeof(*stamps)), first = 0;
    size_t n = 0;
    for (size_t i = 0; stamps && i < name_table->n; i++) {
        if (is_unused(repository, name_table->model_slots[i])) {
            stamps[n++] = name_table->model_slots[i]->unused_since;
        }
    }
    if (n > MAX_UNUSED_NAMES) {
        qsort(stamps, n, sizeof(*stamps), compare_stamps);
        first = stamps[n - MAX_UNUSED_NAMES];
    }
    free(stamps);
    return first;
}

void forget_names(struct repository *repository) {
    const struct name_table *old = repository_name_table(repository);
    struct retirement *retirement = &repository->retirement;
    lock_assert_held(&repository->lock);
    if (repository->n_unused <= MAX_UNUSED_NAMES) {
        return; /* usually: so few were ever unloaded or removed */
    }
    uint64_t first = find_first_kept(repository);
    struct name_table *name_table = first > 0 ? name_table_new(old->n) : NULL;
    if (!name_table) {
        return;
    }
    for (size_t i = 0; i < old->n; i++) {
        struct model_slot *model_slot = old->model_slots[i];
        if (model_slot->unused_since < first && is_unused(repository, model_slot)) {
            ensembles_forget(model_slot);
            model_slot->next_forgotten = retirement->forgotten;
            retirement->forgotten = model_slot;
        } else {
            name_table_add(name_table, model_slot);
        }
    }
    atomic_store_explicit(&repository->name_table, name_table, memory_order_release);
    retire_snapshot(repository, (struct retired_snapshot *)(void *)old);
}

static void free_forgotten(struct model_slot *forgotten) {
    while (forgotten) {
        struct model_slot *next = forgotten->next_forgotten;
        model_slot_free(forgotten);
        forgotten = next;
    }
}

/* ---- creating and freeing the table ---------------------------------------------------------- */

static int compare_origins(const void *a, const void *b) {
    return str_compare(((const struct model_origin *)a)->name,
                       ((const struct model_origin *)b)->name);
}

struct name_table *name_table_make(struct model_list *list) {
    struct name_table *name_table = name_table_new(list->n);
    if (list->n > 0) {
        qsort(list->items, list->n, sizeof(list->items[0]), compare_origins);
    }
    for (size_t i = 0; name_table && i < list->n; i++) {
        struct model_slot *model_slot = model_slot_new(list->items[i].name);
        if (model_slot) {
            name_table_add(name_table, model_slot);
        }
        if (!model_slot || !model_slot_set_origin(model_slot, &list->items[i])) {
            name_table_free(name_table);
            return NULL;
        }
    }
    return name_table;
}

void name_table_free(struct name_table *name_table) {
    for (size_t i = 0; name_table && i < name_table->n; i++) {
        model_slot_free(name_table->model_slots[i]);
    }
    free(name_table);
}

enum { HELD_POLL_NS = 2000000 };

/* A message to one worker. */
struct quiescent_mark {
    struct worker_msg msg;
    struct repository *repository;
    struct worker *worker;
};

/* ---- quiescent marks ------------------------------------------------------------------------- */

static void on_quiescent_mark(struct worker_msg *msg) {
    struct repository *repository = ((struct quiescent_mark *)(void *)msg)->repository;
    struct retirement *retirement = &repository->retirement;
    lock_acquire(&repository->lock);
    if (--retirement->n_pending_marks == 0) {
        lock_cond_broadcast(&retirement->work);
    }
    lock_release(&repository->lock);
}

/* Sends a mark to every worker and waits for all, releasing the lock meanwhile. */
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

/* ---- closing models -------------------------------------------------------------------------- */

static bool is_held(const struct model *model) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_version *version = model->attempts[i].version;
        if (version && atomic_load_explicit(&version->refs, memory_order_acquire) > 1) {
            return true;
        }
    }
    return false;
}

/* Returns: whether there were any. */
static bool close_versions(struct model *model) {
    bool any = false;
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_version *version = model->attempts[i].version;
        if (version) {
            version_stop(version);
            version_close(version);
            model->attempts[i].version = NULL;
            any = true;
        }
    }
    model->ready = NULL;
    model_remove_files(model);
    return any;
}

static void free_snapshots(struct retired_snapshot *retired) {
    while (retired) {
        struct retired_snapshot *next = retired->next;
        free(retired);
        retired = next;
    }
}

/* Keeps an unloaded model as its slot's inactive one, unless there is a newer one. `model_slot`:
 * NULL: the model was the inactive one. The lock is held. */
static bool keep_as_inactive(struct repository *repository, struct model_slot *model_slot,
                             struct model *model) {
    if (!model_slot || !model->unloaded || model_slot->serving || model_slot->inactive) {
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
        lock_release(&repository->lock);
        if (close_versions(closing)) {
            log_event(LOG_INFO, "model closed", LOG_STR("model", closing->name));
        }
        lock_acquire(&repository->lock);
        struct model_slot *model_slot = closing->model_slot; /* NULL: it was inactive */
        closing->model_slot = NULL;
        if (model_slot) {
            model_slot->n_retired--;
            model_slot->closing = model_slot->closing && !closing->unloaded;
        }
        if (!keep_as_inactive(repository, model_slot, closing)) {
            model_free(closing);
        }
        closing = next;
    }
    forget_names(repository);
}

/* ---- reclaiming thread ----------------------------------------------------------------------- */

/* Returns: whether something waits for quiescent marks. */
static bool needs_quiescence(const struct retirement *retirement) {
    bool pending = retirement->retired_snapshots || retirement->closing || retirement->forgotten;
    for (const struct model *model = retirement->unloading; model; model = model->next) {
        pending = pending || !model->quiescent;
    }
    return pending;
}

static void reclaim_pass(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    struct retired_snapshot *snapshots = retirement->retired_snapshots;
    struct model *closing = retirement->closing;
    struct model_slot *forgotten = retirement->forgotten;
    retirement->retired_snapshots = NULL;
    retirement->closing = NULL;
    retirement->forgotten = NULL;
    for (struct model *model = retirement->unloading; model; model = model->next) {
        model->mark_sent = true;
    }
    wait_for_quiescence(repository);
    for (struct model *model = retirement->unloading; model; model = model->next) {
        model->quiescent = model->mark_sent;
    }
    free_snapshots(snapshots);
    free_forgotten(forgotten);
    close_all(repository, closing);
}

/* Until the model is the slot's inactive one, the slot reports that it was unloaded. */
static bool publish_closing(struct repository *repository, const struct model *model) {
    struct model_slot *model_slot = model->model_slot;
    bool before = model_slot->closing;
    model_slot->closing = before || model->unloaded;
    bool shown = model_slot_publish(repository, model_slot);
    model_slot->closing = shown ? model_slot->closing : before;
    return shown;
}

/* Removes unreferenced models from the views. Returns: whether there were any. */
static bool unpublish_unused(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    struct model **at = &retirement->unloading;
    bool hidden = false;
    while (*at) {
        struct model *model = *at;
        *at = model->next; /* unlinked, so that the new view omits it */
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

static void reclaim_main(void *arg) {
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

/* The lock is held. */
static int start_reclaim_thread(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    int rc = 0;
    if (!retirement->has_thread && retirement->n_quiescent_marks > 0 && !retirement->stopping) {
        rc = uv_thread_create(&retirement->thread, reclaim_main, repository);
        retirement->has_thread = rc == 0;
    }
    return rc;
}

/* Without the thread, or when the workers are unknown, everything is kept until retirement_free. */
static void wake_reclaim_thread(struct repository *repository) {
    (void)start_reclaim_thread(repository);
    lock_cond_broadcast(&repository->retirement.work);
}

/* ---- retiring -------------------------------------------------------------------------------- */

void retire_snapshot(struct repository *repository, struct retired_snapshot *retired) {
    lock_assert_held(&repository->lock);
    retired->next = repository->retirement.retired_snapshots;
    repository->retirement.retired_snapshots = retired;
    wake_reclaim_thread(repository);
}

void retire_inactive(struct repository *repository, struct model *model) {
    lock_assert_held(&repository->lock);
    if (model) {
        model->unloaded = false; /* not reported again */
        model->next = repository->retirement.closing;
        repository->retirement.closing = model;
        wake_reclaim_thread(repository);
    }
}

void retire_model(struct repository *repository, struct model_slot *model_slot,
                  struct model *model) {
    lock_assert_held(&repository->lock);
    model->model_slot = model_slot;
    model_slot->n_retired++;
    model->next = repository->retirement.unloading;
    repository->retirement.unloading = model;
    model_for_each_version(model, version_end_delays);
    wake_reclaim_thread(repository);
}

void retire_cancel(struct repository *repository, struct model *model) {
    lock_assert_held(&repository->lock);
    struct model **at = &repository->retirement.unloading;
    while (*at != model) {
        at = &(*at)->next;
    }
    *at = model->next;
    model->next = NULL;
    model->model_slot->n_retired--;
    model->model_slot = NULL;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static void add_quiescent_mark(struct repository *repository, struct worker *worker) {
    struct retirement *retirement = &repository->retirement;
    retirement->quiescent_marks[retirement->n_quiescent_marks++] = (struct quiescent_mark){
        .msg = {.run = on_quiescent_mark}, .repository = repository, .worker = worker};
}

void retirement_init(struct repository *repository, const struct repository_options *options) {
    struct retirement *retirement = &repository->retirement;
    lock_cond_init(&retirement->work);
    retirement->quiescent_marks = arena_calloc(repository->arena, options->n_workers + 2,
                                               sizeof(retirement->quiescent_marks[0]));
    for (size_t i = 0; i < options->n_workers; i++) {
        add_quiescent_mark(repository, options->workers[i]);
    }
    if (options->main) {
        add_quiescent_mark(repository, options->main);
    }
    if (options->admin) {
        add_quiescent_mark(repository, options->admin);
    }
}

enum status retirement_start(struct repository *repository, struct error *err) {
    lock_acquire(&repository->lock);
    int rc = start_reclaim_thread(repository);
    lock_release(&repository->lock);
    return rc == 0 ? ST_OK
                   : error_set(err, ST_IO, "cannot start the thread that frees models: %s",
                               thread_start_error(rc));
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
        (void)close_versions(model);
        model_free(model);
        model = next;
    }
}

void retirement_free(struct repository *repository) {
    struct retirement *retirement = &repository->retirement;
    close_list(retirement->unloading);
    close_list(retirement->closing);
    free_snapshots(retirement->retired_snapshots);
    free_forgotten(retirement->forgotten);
    lock_cond_fini(&retirement->work);
}
