/* The table of names. It only grows: a name that was there once keeps its shelf. A new name makes a
 * new table, and the old one is retired. */
#include <stdlib.h>

#include "serve/repository/internal.h"

static uint64_t hash_name(struct str name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < name.len; i++) {
        hash = (hash ^ (unsigned char)name.ptr[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

struct shelf *shelf_find(const struct catalog *catalog, struct str name) {
    size_t slot = (size_t)hash_name(name) & catalog->slot_mask;
    struct shelf *shelf = catalog->slots[slot];
    while (shelf && !str_eq(shelf->name, name)) {
        slot = (slot + 1) & catalog->slot_mask;
        shelf = catalog->slots[slot];
    }
    return shelf;
}

/* ---- making ---------------------------------------------------------------------------------- */

static struct shelf *shelf_new(struct str name) {
    struct shelf *shelf = calloc(1, sizeof(*shelf) + name.len + 1);
    if (shelf) {
        char *text = (char *)(shelf + 1);
        memcpy(text, name.ptr, name.len);
        shelf->name = str_make(text, name.len);
        shelf->origin.path = STR("");
    }
    return shelf;
}

static void shelf_free(struct shelf *shelf) {
    if (shelf) {
        free((void *)atomic_load(&shelf->view));
        model_free(shelf->serving); /* never loaded, or closed before */
        model_free(shelf->coming);
        model_free(shelf->past);
        if (shelf->origin.path.len > 0) {
            free((char *)shelf->origin.path.ptr);
        }
        free(shelf);
    }
}

bool shelf_set_origin(struct shelf *shelf, const struct model_origin *origin) {
    atomic_store_explicit(&shelf->listed, true, memory_order_relaxed);
    if (!str_eq(shelf->origin.path, origin->path)) {
        char *path = str_dup(origin->path);
        if (!path) {
            return false;
        }
        if (shelf->origin.path.len > 0) {
            free((char *)shelf->origin.path.ptr);
        }
        shelf->origin.path = str_make(path, origin->path.len);
    }
    shelf->origin.name = shelf->name;
    shelf->origin.file_backend = origin->file_backend;
    shelf->origin.params = origin->params;
    shelf->origin.pinned = origin->pinned;
    return true;
}

/* Room for `n` shelves; none is in it. */
static struct catalog *catalog_new(size_t n) {
    size_t n_slots = 2;
    while (n_slots < 2 * n) {
        n_slots *= 2;
    }
    struct catalog *catalog =
        calloc(1, sizeof(*catalog) + (n + n_slots) * sizeof(catalog->shelves[0]));
    if (catalog) {
        catalog->shelves = (struct shelf **)(void *)(catalog + 1);
        catalog->slots = catalog->shelves + n;
        catalog->slot_mask = n_slots - 1;
    }
    return catalog;
}

/* Behind the others, whose names are before its. */
static void catalog_add(struct catalog *catalog, struct shelf *shelf) {
    catalog->shelves[catalog->n++] = shelf;
    size_t slot = (size_t)hash_name(shelf->name) & catalog->slot_mask;
    while (catalog->slots[slot]) {
        slot = (slot + 1) & catalog->slot_mask;
    }
    catalog->slots[slot] = shelf;
}

/* By the bytes of the names. */
static int compare_names(struct str a, struct str b) {
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order != 0 ? order : a.len < b.len ? -1 : a.len > b.len;
}

/* The catalog with one more in its place by name. */
static struct catalog *catalog_with(const struct catalog *old, struct shelf *shelf) {
    struct catalog *catalog = catalog_new(old->n + 1);
    size_t i = 0;
    for (; catalog && i < old->n && compare_names(old->shelves[i]->name, shelf->name) < 0; i++) {
        catalog_add(catalog, old->shelves[i]);
    }
    if (catalog) {
        catalog_add(catalog, shelf);
    }
    for (; catalog && i < old->n; i++) {
        catalog_add(catalog, old->shelves[i]);
    }
    return catalog;
}

struct shelf *shelf_get(struct repository *repository, struct str name) {
    lock_assert_held(&repository->lock);
    const struct catalog *old = repository_catalog(repository);
    struct shelf *shelf = shelf_find(old, name);
    if (shelf) {
        return shelf;
    }
    shelf = shelf_new(name);
    struct catalog *catalog = shelf ? catalog_with(old, shelf) : NULL;
    if (!catalog || !shelf_show(repository, shelf)) {
        shelf_free(shelf);
        free(catalog);
        return NULL;
    }
    atomic_store_explicit(&repository->catalog, catalog, memory_order_release);
    retire(repository, (struct retired *)(void *)old);
    return shelf;
}

/* ---- the first and the last ------------------------------------------------------------------ */

static int compare_origins(const void *a, const void *b) {
    return compare_names(((const struct model_origin *)a)->name,
                         ((const struct model_origin *)b)->name);
}

enum status catalog_make(struct repository *repository, struct error *err) {
    struct model_list *list = &repository->list;
    struct catalog *catalog = catalog_new(list->n);
    if (list->n > 0) {
        qsort(list->items, list->n, sizeof(list->items[0]), compare_origins);
    }
    atomic_store(&repository->catalog, catalog);
    for (size_t i = 0; catalog && i < list->n; i++) {
        struct shelf *shelf = shelf_new(list->items[i].name);
        if (!shelf) {
            catalog = NULL;
            break;
        }
        catalog_add(catalog, shelf);
        if (!shelf_set_origin(shelf, &list->items[i])) {
            catalog = NULL;
        }
    }
    return catalog ? ST_OK : error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
}

void catalog_free(struct repository *repository) {
    struct catalog *catalog = (struct catalog *)repository_catalog(repository);
    for (size_t i = 0; catalog && i < catalog->n; i++) {
        shelf_free(catalog->shelves[i]);
    }
    free(catalog);
}
