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

struct model_slot *model_slot_find(const struct name_table *name_table, struct str name) {
    size_t slot = (size_t)hash_name(name) & name_table->slot_mask;
    struct model_slot *model_slot = name_table->slots[slot];
    while (model_slot && !str_eq(model_slot->name, name)) {
        slot = (slot + 1) & name_table->slot_mask;
        model_slot = name_table->slots[slot];
    }
    return model_slot;
}

/* ---- making ---------------------------------------------------------------------------------- */

static struct model_slot *model_slot_new(struct str name) {
    struct model_slot *model_slot = calloc(1, sizeof(*model_slot) + name.len + 1);
    if (model_slot) {
        char *text = (char *)(model_slot + 1);
        memcpy(text, name.ptr, name.len);
        model_slot->name = str_make(text, name.len);
        model_slot->origin.path = STR("");
    }
    return model_slot;
}

static void model_slot_free(struct model_slot *model_slot) {
    if (model_slot) {
        free((void *)atomic_load(&model_slot->view));
        model_free(model_slot->serving); /* never loaded, or closed before */
        model_free(model_slot->loading);
        model_free(model_slot->inactive);
        if (model_slot->origin.path.len > 0) {
            free((char *)model_slot->origin.path.ptr);
        }
        free(model_slot);
    }
}

bool model_slot_set_origin(struct model_slot *model_slot, const struct model_origin *origin) {
    atomic_store_explicit(&model_slot->listed, true, memory_order_relaxed);
    if (!str_eq(model_slot->origin.path, origin->path)) {
        char *path = str_dup(origin->path);
        if (!path) {
            return false;
        }
        if (model_slot->origin.path.len > 0) {
            free((char *)model_slot->origin.path.ptr);
        }
        model_slot->origin.path = str_make(path, origin->path.len);
    }
    model_slot->origin.name = model_slot->name;
    model_slot->origin.file_backend = origin->file_backend;
    model_slot->origin.params = origin->params;
    model_slot->origin.pinned = origin->pinned;
    return true;
}

/* Room for `n` shelves; none is in it. */
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

/* Behind the others, whose names are before its. */
static void name_table_add(struct name_table *name_table, struct model_slot *model_slot) {
    name_table->model_slots[name_table->n++] = model_slot;
    size_t slot = (size_t)hash_name(model_slot->name) & name_table->slot_mask;
    while (name_table->slots[slot]) {
        slot = (slot + 1) & name_table->slot_mask;
    }
    name_table->slots[slot] = model_slot;
}

/* By the bytes of the names. */
static int compare_names(struct str a, struct str b) {
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order != 0 ? order : a.len < b.len ? -1 : a.len > b.len;
}

/* The catalog with one more in its place by name. */
static struct name_table *name_table_with(const struct name_table *old,
                                          struct model_slot *model_slot) {
    struct name_table *name_table = name_table_new(old->n + 1);
    size_t i = 0;
    for (;
         name_table && i < old->n && compare_names(old->model_slots[i]->name, model_slot->name) < 0;
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

/* ---- the first and the last ------------------------------------------------------------------ */

static int compare_origins(const void *a, const void *b) {
    return compare_names(((const struct model_origin *)a)->name,
                         ((const struct model_origin *)b)->name);
}

enum status name_table_init(struct repository *repository, struct error *err) {
    struct model_list *list = &repository->list;
    struct name_table *name_table = name_table_new(list->n);
    if (list->n > 0) {
        qsort(list->items, list->n, sizeof(list->items[0]), compare_origins);
    }
    atomic_store(&repository->name_table, name_table);
    for (size_t i = 0; name_table && i < list->n; i++) {
        struct model_slot *model_slot = model_slot_new(list->items[i].name);
        if (!model_slot) {
            name_table = NULL;
            break;
        }
        name_table_add(name_table, model_slot);
        if (!model_slot_set_origin(model_slot, &list->items[i])) {
            name_table = NULL;
        }
    }
    return name_table ? ST_OK
                      : error_set(err, ST_NO_MEMORY, "out of memory for the table of models");
}

void name_table_free(struct repository *repository) {
    struct name_table *name_table = (struct name_table *)repository_name_table(repository);
    for (size_t i = 0; name_table && i < name_table->n; i++) {
        model_slot_free(name_table->model_slots[i]);
    }
    free(name_table);
}
