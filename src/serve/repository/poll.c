/* What is in the directories of models now, and what has changed since it was loaded. Files that
 * are being written while they are looked at look different the next time, so that what is there in
 * the end is what is loaded in the end. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "serve/config/fingerprint.h"
#include "serve/repository/internal.h"

/* ---- the directories ------------------------------------------------------------------------- */

/* What a directory of models holds. Memory is in list->arena. */
static bool scan_root_into(struct model_list *list, struct str root) {
    struct error err;
    enum status st = scan_root(list, root, &err);
    if (st != ST_OK) {
        log_event(LOG_WARNING, "a model repository cannot be read", LOG_CSTR("reason", err.text));
    }
    return st == ST_OK;
}

static bool has_name(const struct model_list *list, struct str name) {
    for (size_t i = 0; i < list->n; i++) {
        if (str_eq(list->items[i].name, name)) {
            return true;
        }
    }
    return false;
}

/* What was found is listed, on a shelf of its own. */
static void mark_found_listed(struct repository *repository, const struct model_list *found) {
    for (size_t i = 0; i < found->n; i++) {
        struct model_slot *model_slot = model_slot_get(repository, found->items[i].name);
        if (model_slot && !model_slot->origin.pinned) { /* what was named by itself stays what it
                                                           is */
            (void)model_slot_set_origin(model_slot, &found->items[i]);
        }
    }
}

/* What was not found is not listed. */
static void mark_missing_unlisted(struct repository *repository, const struct model_list *found) {
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        struct model_slot *model_slot = name_table->model_slots[i];
        bool there = model_slot->origin.pinned || has_name(found, model_slot->name);
        if (!there) {
            atomic_store_explicit(&model_slot->listed, false, memory_order_relaxed);
        }
    }
}

/* Looks into each directory by itself: of two models of one name the first is taken. */
static bool scan_all_roots(struct repository *repository, struct model_list *found) {
    bool all = true;
    for (size_t i = 0; i < repository->list.n_roots; i++) {
        struct model_list one = {.arena = found->arena};
        all = scan_root_into(&one, repository->list.roots[i]) && all;
        for (size_t j = 0; j < one.n; j++) {
            if (has_name(found, one.items[j].name)) {
                log_event(LOG_WARNING, "two models have one name; the first is taken",
                          LOG_STR("model", one.items[j].name),
                          LOG_STR("left_out", one.items[j].path));
            } else if (!model_list_add(found, &one.items[j])) {
                all = false;
            }
        }
    }
    return all;
}

/* Returns: false when not everything could be looked at. */
static bool scan_and_list(struct repository *repository) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_list found = {.arena = arena};
    bool all = arena && scan_all_roots(repository, &found);
    lock_acquire(&repository->lock);
    mark_found_listed(repository, &found);
    if (all) {
        mark_missing_unlisted(repository, &found);
    }
    lock_release(&repository->lock);
    arena_free(arena);
    return all;
}

void poll_scan(struct repository *repository) {
    scan_and_list(repository);
}

bool poll_find(struct repository *repository, struct str name, struct model_origin *out,
               struct arena *arena) {
    *out = (struct model_origin){.name = name, .path = STR("")};
    lock_acquire(&repository->lock);
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    if (model_slot && model_slot->origin.pinned) {
        *out = model_slot->origin;
        out->path = arena_dup(arena, model_slot->origin.path);
    }
    lock_release(&repository->lock);
    if (out->pinned) {
        return out->path.ptr && fingerprint_of(out->path.ptr) != 0;
    }
    for (size_t i = 0; i < repository->list.n_roots && model_name_is_valid(name); i++) {
        struct str path =
            arena_printf(arena, "%s/%.*s", repository->list.roots[i].ptr, STR_ARG(name));
        if (path.ptr && name.ptr[0] != '.' && model_dir_exists(path.ptr)) {
            out->path = path;
            return true;
        }
    }
    return false;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* What is to be done for one name. */
struct finding {
    struct model_origin origin; /* its path in the arena of the look */
    uint64_t seen;
    bool listed;
    bool served;
};

static bool read_model_slot(struct repository *repository, size_t i, struct arena *arena,
                            struct finding *out) {
    lock_acquire(&repository->lock);
    const struct name_table *name_table = repository_name_table(repository);
    bool there = i < name_table->n;
    if (there) {
        const struct model_slot *model_slot = name_table->model_slots[i];
        *out = (struct finding){
            .origin = model_slot->origin,
            .seen = model_slot->seen,
            .listed = atomic_load_explicit(&model_slot->listed, memory_order_relaxed),
            .served = model_slot->serving != NULL,
        };
        out->origin.path = arena_dup(arena, model_slot->origin.path);
        there = out->origin.path.ptr != NULL;
    }
    lock_release(&repository->lock);
    return there;
}

static void set_tried_fingerprint(struct repository *repository, struct str name, uint64_t seen) {
    lock_acquire(&repository->lock);
    model_slot_find(repository_name_table(repository), name)->seen = seen;
    lock_release(&repository->lock);
}

static void unload_missing(struct repository *repository, struct str name) {
    lock_acquire(&repository->lock);
    unload_model_slot(repository, model_slot_find(repository_name_table(repository), name));
    lock_release(&repository->lock);
    if (repository->on_state_changed) {
        repository->on_state_changed(repository->on_state_changed_user);
    }
}

/* `gone`: all directories could be read, so what is not there is not there. */
static void check_model(struct repository *repository, const struct finding *finding, bool gone) {
    struct str name = finding->origin.name;
    struct error err;
    bool there = finding->listed || finding->origin.pinned;
    uint64_t now = there ? fingerprint_of(finding->origin.path.ptr) : 0;
    bool stays = now == 0 && finding->served; /* it went while it was being loaded anew */
    if ((now == finding->seen && !stays) || (now == 0 && !gone)) {
        return;
    }
    if (now == 0) {
        log_event(LOG_INFO, "the files of a model are gone", LOG_STR("model", name));
        unload_missing(repository, name);
        set_tried_fingerprint(repository, name, 0);
        return;
    }
    struct model *model = load_prepare(&finding->origin, NULL, &err);
    if (!model) {
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", name),
                  LOG_CSTR("reason", err.text));
        return;
    }
    set_tried_fingerprint(repository, name, model->fingerprint);
    (void)load_model(repository, model, LOAD_FOUND, &err); /* which says in the log how it went */
}

static bool is_ending(struct repository *repository) {
    return atomic_load_explicit(&repository->draining, memory_order_seq_cst);
}

static void check_all_models(struct repository *repository) {
    bool gone = scan_and_list(repository);
    bool more = true;
    for (size_t i = 0; more && !is_ending(repository); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct finding finding;
        more = arena && read_model_slot(repository, i, arena, &finding);
        if (more) {
            check_model(repository, &finding, gone);
        }
        arena_free(arena);
    }
}

/* Returns: false at the end of polling. */
static bool wait_for_next(struct repository *repository) {
    uint64_t until_ns = clock_now_ns() + repository->poll_ns;
    lock_acquire(&repository->lock);
    while (!is_ending(repository) && !repository->poll_now &&
           lock_cond_wait_until_ns(&repository->lock, &repository->poll, until_ns)) {
    }
    repository->poll_now = false;
    lock_release(&repository->lock);
    return !is_ending(repository);
}

void repository_poll_now(struct repository *repository) {
    lock_acquire(&repository->lock);
    repository->poll_now = true;
    lock_cond_broadcast(&repository->poll);
    lock_release(&repository->lock);
}

void poll_run(struct repository *repository) {
    while (wait_for_next(repository)) {
        atomic_fetch_add(&repository->n_busy, 1);
        check_all_models(repository);
        atomic_fetch_sub(&repository->n_busy, 1);
    }
}
