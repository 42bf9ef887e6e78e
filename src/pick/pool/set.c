/* The set of pools. In an update pools of the same name keep their address in memory, so that
 * readers, probes and scrapes recognize them. */
#include "pick/pool/set.h"

#include <assert.h>
#include <stdlib.h>

#include "core/event/lock.h"
#include "core/must/must.h"

struct pool_set {
    struct lock updating; /* one update at a time */
    struct lock lock;     /* of `list` */
    struct pool_list *list;
    _Atomic uint64_t generation; /* readers compare it with their own */
    struct pool *empty_pool;
    struct prefix_table *prefix_table; /* of all pools; NULL: none */
};

/* ---- specs ----------------------------------------------------------------------------------- */

void pool_specs_free(struct pool_specs *specs) {
    for (size_t i = 0; i < specs->n; i++) {
        pool_spec_free(specs->items[i]);
    }
    free(specs->items);
    *specs = (struct pool_specs){.n = 0};
}

void pool_specs_add(struct pool_specs *specs, struct pool_spec *spec) {
    if ((specs->n & (specs->n - 1)) == 0) { /* the array is full at 0 and at each power of two */
        specs->items = must_realloc(specs->items, specs->n > 0 ? 2 * specs->n : 1,
                                    sizeof(struct pool_spec *), "the list of pools");
    }
    specs->items[specs->n++] = spec;
}

static enum status check_specs(const struct pool_specs *specs, struct arena *arena,
                               struct pool_match_conflict *conflict, struct error *err) {
    const struct pool_match **matches =
        arena_calloc(arena, specs->n + 1, sizeof(struct pool_match *));
    struct pool_index index;
    if (!matches) {
        return error_no_memory(err, "the list of pools");
    }
    for (size_t i = 0; i < specs->n; i++) {
        matches[i] = &specs->items[i]->match;
    }
    return pool_index_build(matches, specs->n, arena, &index, conflict, err);
}

enum status pool_specs_check(const struct pool_specs *specs, struct pool_match_conflict *conflict,
                             struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    enum status st = arena ? check_specs(specs, arena, conflict, err)
                           : error_no_memory(err, "the list of pools");
    arena_free(arena);
    return st;
}

/* ---- the list -------------------------------------------------------------------------------- */

void pool_list_ref(struct pool_list *list) {
    atomic_fetch_add_explicit(&list->n_refs, 1, memory_order_relaxed);
}

void pool_list_unref(struct pool_list *list) {
    if (atomic_fetch_sub_explicit(&list->n_refs, 1, memory_order_acq_rel) > 1) {
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->entries[i].pool) {
            pool_unref(list->entries[i].pool);
        }
    }
    arena_free(list->arena);
}

static int compare_entries(const void *a, const void *b) {
    struct str left = (*(const struct pool_entry *const *)a)->name;
    struct str right = (*(const struct pool_entry *const *)b)->name;
    return str_compare(left, right);
}

const struct pool_entry *pool_list_find(const struct pool_list *list, struct str name) {
    const struct pool_entry wanted = {.name = name}, *key = &wanted;
    const struct pool_entry **found =
        list->n > 0 ? bsearch(&key, list->by_name, list->n, sizeof(key), compare_entries) : NULL;
    return found ? *found : NULL;
}

static struct pool_list *list_new(size_t n, bool is_list, uint64_t generation) {
    struct arena *arena = arena_new(NULL, 0);
    struct pool_list *list = arena ? arena_calloc(arena, 1, sizeof(*list)) : NULL;
    if (list) {
        atomic_init(&list->n_refs, 1);
        list->arena = arena;
        list->generation = generation;
        list->is_list = is_list;
        list->entries = arena_calloc(arena, n + 1, sizeof(*list->entries));
        list->by_name = arena_calloc(arena, n + 1, sizeof(struct pool_entry *));
    }
    if (!list || !list->entries || !list->by_name) {
        arena_free(arena);
        return NULL;
    }
    return list;
}

/* ---- a new list ------------------------------------------------------------------------------ */

/* Adds the existing pool of this name, or a new one without a slot. */
static enum status add_entry(struct pool_list *list, const struct pool_list *old,
                             const struct pool_spec *spec, struct error *err) {
    struct str name = list->is_list ? spec->name : STR("");
    const struct pool_entry *before = pool_list_find(old, name);
    struct pool_entry *entry = &list->entries[list->n];
    *entry = (struct pool_entry){.slot = SIZE_MAX};
    if (!pool_match_dup(&spec->match, list->arena, &entry->match)) {
        return error_no_memory(err, "the list of pools");
    }
    if (before) {
        pool_ref(before->pool);
        entry->pool = before->pool;
        entry->slot = before->slot;
    } else {
        enum status st = pool_new_named(name, &entry->pool, err);
        if (st != ST_OK) {
            return st;
        }
    }
    entry->name = pool_name(entry->pool);
    list->by_name[list->n++] = entry;
    return ST_OK;
}

/* New pools get the lowest free slots. */
static enum status assign_slots(struct pool_list *list, const struct pool_list *old,
                                struct error *err) {
    size_t most = old->n_slots + list->n, next = 0;
    bool *taken = calloc(most + 1, sizeof(*taken));
    if (!taken) {
        return error_no_memory(err, "the list of pools");
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->entries[i].slot != SIZE_MAX) {
            taken[list->entries[i].slot] = true;
        }
    }
    for (size_t i = 0; i < list->n; i++) {
        size_t *slot = &list->entries[i].slot;
        if (*slot == SIZE_MAX) {
            while (taken[next]) {
                next++;
            }
            *slot = next++;
        }
        list->n_slots = *slot >= list->n_slots ? *slot + 1 : list->n_slots;
    }
    free(taken);
    return ST_OK;
}

static enum status build_index(struct pool_list *list, struct error *err) {
    const struct pool_match **matches =
        arena_calloc(list->arena, list->n + 1, sizeof(struct pool_match *));
    struct pool_match_conflict conflict;
    if (!matches) {
        return error_no_memory(err, "the list of pools");
    }
    for (size_t i = 0; i < list->n; i++) {
        matches[i] = &list->entries[i].match;
    }
    return pool_index_build(matches, list->n, list->arena, &list->index, &conflict, err);
}

static enum status list_build(const struct pool_list *old, const struct pool_specs *specs,
                              struct pool_list **out, struct error *err) {
    struct pool_list *list = list_new(specs->n, specs->is_list, old->generation + 1);
    if (!list) {
        return error_no_memory(err, "the list of pools");
    }
    enum status st = ST_OK;
    for (size_t i = 0; i < specs->n && st == ST_OK; i++) {
        st = add_entry(list, old, specs->items[i], err);
    }
    if (st == ST_OK) {
        st = assign_slots(list, old, err);
    }
    if (st == ST_OK) {
        st = build_index(list, err);
    }
    if (st != ST_OK) {
        pool_list_unref(list);
        return st;
    }
    if (list->n > 0) {
        qsort(list->by_name, list->n, sizeof(struct pool_entry *), compare_entries);
    }
    *out = list;
    return ST_OK;
}

static enum status update_pools(const struct pool_set *set, const struct pool_list *list,
                                struct pool_specs *specs, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < specs->n && st == ST_OK; i++) {
        pool_attach_prefix_table(list->entries[i].pool, set->prefix_table);
        st = pool_update(list->entries[i].pool, &specs->items[i], err);
    }
    return st;
}

static void publish_list(struct pool_set *set, struct pool_list *list) {
    struct pool_list *old = set->list;
    lock_acquire(&set->lock);
    set->list = list;
    atomic_store_explicit(&set->generation, list->generation, memory_order_release);
    lock_release(&set->lock);
    pool_list_unref(old);
}

enum status pool_set_update(struct pool_set *set, struct pool_specs *specs, struct error *err) {
    struct pool_list *list = NULL;
    lock_acquire(&set->updating);
    enum status st = list_build(set->list, specs, &list, err);
    if (st == ST_OK) {
        assert(list);
        st = update_pools(set, list, specs, err);
        if (st == ST_OK) {
            publish_list(set, list);
        } else {
            pool_list_unref(list);
        }
    }
    lock_release(&set->updating);
    pool_specs_free(specs);
    return st;
}

/* ---- the set --------------------------------------------------------------------------------- */

enum status pool_set_new(struct pool_set **out, struct error *err) {
    struct pool_set *set = calloc(1, sizeof(*set));
    struct pool_list *list = list_new(0, false, 0);
    if (!set || !list || pool_new(&set->empty_pool, err) != ST_OK) {
        arena_free(list ? list->arena : NULL);
        free(set);
        return error_no_memory(err, "the list of pools");
    }
    lock_init(&set->updating);
    lock_init(&set->lock);
    atomic_init(&set->generation, 0);
    set->list = list;
    *out = set;
    return ST_OK;
}

void pool_set_free(struct pool_set *set) {
    if (set) {
        pool_list_unref(set->list);
        pool_free(set->empty_pool);
        prefix_table_unref(set->prefix_table);
        lock_fini(&set->updating);
        lock_fini(&set->lock);
        free(set);
    }
}

void pool_set_attach_prefix_table(struct pool_set *set, struct prefix_table *table) {
    assert(!set->prefix_table);
    set->prefix_table = prefix_table_ref(table);
}

uint64_t pool_set_generation(const struct pool_set *set) {
    return atomic_load_explicit(&set->generation, memory_order_acquire);
}

struct pool_list *pool_set_acquire_list(struct pool_set *set) {
    lock_acquire(&set->lock);
    struct pool_list *list = set->list;
    pool_list_ref(list);
    lock_release(&set->lock);
    return list;
}

void pool_set_get_stats(struct pool_set *set, struct pool_stats *out) {
    struct pool_list *list = pool_set_acquire_list(set);
    *out = (struct pool_stats){.generation = list->generation};
    for (size_t i = 0; i < list->n; i++) {
        struct pool_stats one;
        pool_get_stats(list->entries[i].pool, &one);
        out->n_endpoints += one.n_endpoints;
        out->n_ready += one.n_ready;
        out->n_unchecked += one.n_unchecked;
        out->n_refused += one.n_refused;
        out->n_ejected += one.n_ejected;
        out->n_shedding += one.n_shedding;
        out->n_in_flight += one.n_in_flight;
    }
    pool_list_unref(list);
}

/* ---- readers --------------------------------------------------------------------------------- */

struct pool_set_reader {
    struct pool_set *set;
    struct pool_list *list;
    struct pool_reader **readers; /* by slot; NULL: not created yet */
    size_t n_slots;
    struct pool_reader *empty_pool;
};

enum status pool_set_reader_new(struct pool_set *set, struct pool_set_reader **out,
                                struct error *err) {
    struct pool_set_reader *reader = calloc(1, sizeof(*reader));
    if (!reader) {
        return error_no_memory(err, "the list of pools");
    }
    enum status st = pool_reader_new(set->empty_pool, 0, &reader->empty_pool, err);
    if (st != ST_OK) {
        free(reader);
        return st;
    }
    reader->set = set;
    reader->list = list_new(0, false, 0);
    if (!reader->list) {
        pool_reader_unref(reader->empty_pool);
        free(reader);
        return error_no_memory(err, "the list of pools");
    }
    pool_set_reader_refresh(reader);
    *out = reader;
    return ST_OK;
}

void pool_set_reader_free(struct pool_set_reader *reader) {
    if (reader) {
        for (size_t i = 0; i < reader->n_slots; i++) {
            pool_reader_unref(reader->readers[i]);
        }
        free(reader->readers);
        pool_reader_unref(reader->empty_pool);
        pool_list_unref(reader->list);
        free(reader);
    }
}

/* Readers of pools that stay keep their slots. */
static bool update_readers(struct pool_set_reader *reader, const struct pool_list *list) {
    struct pool_reader **readers = calloc(list->n_slots + 1, sizeof(struct pool_reader *));
    if (!readers) {
        return false;
    }
    for (size_t i = 0; i < list->n; i++) {
        size_t slot = list->entries[i].slot;
        struct pool_reader *old = slot < reader->n_slots ? reader->readers[slot] : NULL;
        if (old && pool_reader_pool(old) == list->entries[i].pool) {
            readers[slot] = old;
            reader->readers[slot] = NULL;
        }
    }
    for (size_t i = 0; i < reader->n_slots; i++) {
        pool_reader_unref(reader->readers[i]);
    }
    free(reader->readers);
    reader->readers = readers;
    reader->n_slots = list->n_slots;
    return true;
}

const struct pool_list *pool_set_reader_refresh(struct pool_set_reader *reader) {
    if (pool_set_generation(reader->set) != reader->list->generation) {
        struct pool_list *old = reader->list, *list = pool_set_acquire_list(reader->set);
        if (update_readers(reader, list)) {
            reader->list = list;
            pool_list_unref(old);
        } else {
            pool_list_unref(list);
        }
    }
    return reader->list;
}

void pool_set_reader_refresh_all(struct pool_set_reader *reader) {
    pool_set_reader_refresh(reader);
    for (size_t i = 0; i < reader->n_slots; i++) {
        if (reader->readers[i]) {
            pool_reader_refresh(reader->readers[i]);
        }
    }
}

struct pool_reader *pool_set_reader_get(struct pool_set_reader *reader,
                                        const struct pool_entry *entry) {
    struct pool_reader **place = &reader->readers[entry->slot];
    struct error err;
    if (!*place && pool_reader_new(entry->pool, 0, place, &err) != ST_OK) {
        *place = NULL;
    }
    return *place;
}

struct pool_reader *pool_set_reader_get_empty(struct pool_set_reader *reader) {
    return reader->empty_pool;
}

/* ---- data for each pool: items are moved from the array of the old list to that of the new one */

void per_pool_table_fini(struct per_pool_table *table) {
    for (size_t i = 0; table->items && i < table->n_slots; i++) {
        if (table->items[i]) {
            table->free_item(table->user, table->items[i]);
        }
    }
    free(table->items);
    table->items = NULL;
    table->n_slots = 0;
    table->generation = 0;
}

/* Takes the pool's item out of the old array, or allocates one. */
static struct per_pool *take_item(struct per_pool_table *table, const struct pool_entry *entry) {
    struct per_pool **old =
        table->items && entry->slot < table->n_slots ? &table->items[entry->slot] : NULL;
    struct per_pool *item = old && *old && (*old)->pool == entry->pool ? *old : NULL;
    if (item) {
        *old = NULL;
        return item;
    }
    item = calloc(1, table->item_bytes);
    if (item) {
        item->pool = entry->pool;
    }
    return item;
}

bool per_pool_table_sync(struct per_pool_table *table, const struct pool_list *list) {
    if (table->generation == list->generation) {
        return true;
    }
    struct per_pool **items = calloc(list->n_slots + 1, sizeof(struct per_pool *));
    bool room = items != NULL;
    for (size_t i = 0; room && i < list->n; i++) {
        struct per_pool *item = take_item(table, &list->entries[i]);
        items[list->entries[i].slot] = item;
        room = item != NULL;
    }
    per_pool_table_fini(table);
    table->items = items;
    table->n_slots = items ? list->n_slots : 0;
    table->generation = room ? list->generation : 0;
    return room;
}
