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
static bool look_into(struct model_list *list, struct str root) {
    struct error err;
    enum status st = scan_root(list, root, &err);
    if (st != ST_OK) {
        log_event(LOG_WARNING, "a model repository cannot be read",
                  LOG_TEXT_OF("reason", err.text));
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
static void list_found(struct repository *repository, const struct model_list *found) {
    for (size_t i = 0; i < found->n; i++) {
        struct shelf *shelf = shelf_get(repository, found->items[i].name);
        if (shelf && !shelf->origin.pinned) { /* what was named by itself stays what it is */
            (void)shelf_set_origin(shelf, &found->items[i]);
        }
    }
}

/* What was not found is not listed. */
static void unlist_missing(struct repository *repository, const struct model_list *found) {
    const struct catalog *catalog = repository_catalog(repository);
    for (size_t i = 0; i < catalog->n; i++) {
        struct shelf *shelf = catalog->shelves[i];
        bool there = shelf->origin.pinned || has_name(found, shelf->name);
        if (!there) {
            atomic_store_explicit(&shelf->listed, false, memory_order_relaxed);
        }
    }
}

/* Looks into each directory by itself: of two models of one name the first is taken. */
static bool look_everywhere(struct repository *repository, struct model_list *found) {
    bool all = true;
    for (size_t i = 0; i < repository->list.n_roots; i++) {
        struct model_list one = {.arena = found->arena};
        all = look_into(&one, repository->list.roots[i]) && all;
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
static bool look(struct repository *repository) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_list found = {.arena = arena};
    bool all = arena && look_everywhere(repository, &found);
    lock_take(&repository->lock);
    list_found(repository, &found);
    if (all) {
        unlist_missing(repository, &found);
    }
    lock_drop(&repository->lock);
    arena_free(arena);
    return all;
}

void poll_look(struct repository *repository) {
    look(repository);
}

bool poll_find(struct repository *repository, struct str name, struct model_origin *out,
               struct arena *arena) {
    *out = (struct model_origin){.name = name, .path = STR("")};
    lock_take(&repository->lock);
    const struct shelf *shelf = shelf_find(repository_catalog(repository), name);
    if (shelf && shelf->origin.pinned) {
        *out = shelf->origin;
        out->path = arena_dup(arena, shelf->origin.path);
    }
    lock_drop(&repository->lock);
    if (out->pinned) {
        return out->path.ptr && fingerprint_of(out->path.ptr) != 0;
    }
    for (size_t i = 0; i < repository->list.n_roots && model_name_ok(name); i++) {
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

static bool read_shelf(struct repository *repository, size_t i, struct arena *arena,
                       struct finding *out) {
    lock_take(&repository->lock);
    const struct catalog *catalog = repository_catalog(repository);
    bool there = i < catalog->n;
    if (there) {
        const struct shelf *shelf = catalog->shelves[i];
        *out = (struct finding){
            .origin = shelf->origin,
            .seen = shelf->seen,
            .listed = atomic_load_explicit(&shelf->listed, memory_order_relaxed),
            .served = shelf->serving != NULL,
        };
        out->origin.path = arena_dup(arena, shelf->origin.path);
        there = out->origin.path.ptr != NULL;
    }
    lock_drop(&repository->lock);
    return there;
}

static void set_seen(struct repository *repository, struct str name, uint64_t seen) {
    lock_take(&repository->lock);
    shelf_find(repository_catalog(repository), name)->seen = seen;
    lock_drop(&repository->lock);
}

static void unload(struct repository *repository, struct str name) {
    lock_take(&repository->lock);
    unload_shelf(repository, shelf_find(repository_catalog(repository), name));
    lock_drop(&repository->lock);
    if (repository->changed) {
        repository->changed(repository->changed_cookie);
    }
}

/* `gone`: all directories could be read, so what is not there is not there. */
static void check(struct repository *repository, const struct finding *finding, bool gone) {
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
        unload(repository, name);
        set_seen(repository, name, 0);
        return;
    }
    struct model *model = load_prepare(&finding->origin, NULL, &err);
    if (!model) {
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", name),
                  LOG_TEXT_OF("reason", err.text));
        return;
    }
    set_seen(repository, name, model->fingerprint);
    (void)load_model(repository, model, LOAD_FOUND, &err); /* which says in the log how it went */
}

static bool is_ending(struct repository *repository) {
    return atomic_load_explicit(&repository->draining, memory_order_seq_cst);
}

static void check_all(struct repository *repository) {
    bool gone = look(repository);
    bool more = true;
    for (size_t i = 0; more && !is_ending(repository); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct finding finding;
        more = arena && read_shelf(repository, i, arena, &finding);
        if (more) {
            check(repository, &finding, gone);
        }
        arena_free(arena);
    }
}

/* Returns: false at the end of polling. */
static bool wait_for_next(struct repository *repository) {
    uint64_t until_ns = clock_now_ns() + repository->poll_ns;
    lock_take(&repository->lock);
    while (!is_ending(repository) && !repository->look_soon &&
           lock_wait_until_ns(&repository->lock, &repository->poll, until_ns)) {
    }
    repository->look_soon = false;
    lock_drop(&repository->lock);
    return !is_ending(repository);
}

void repository_look_soon(struct repository *repository) {
    lock_take(&repository->lock);
    repository->look_soon = true;
    lock_wake_all(&repository->poll);
    lock_drop(&repository->lock);
}

void poll_run(struct repository *repository) {
    while (wait_for_next(repository)) {
        atomic_fetch_add(&repository->n_busy, 1);
        check_all(repository);
        atomic_fetch_sub(&repository->n_busy, 1);
    }
}
