/* Items are moved from the array of the old list to that of the new one. */
#include "pick/pool/per_pool_table.h"

#include <stdlib.h>

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
