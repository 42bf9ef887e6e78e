/* Items of pools, moved from one array to the next. */
#include "pick/pool/followed.h"

#include <stdlib.h>

void followed_drop(struct followed_pools *followed) {
    for (size_t i = 0; followed->items && i < followed->n_slots; i++) {
        if (followed->items[i]) {
            followed->drop(followed->cookie, followed->items[i]);
        }
    }
    free(followed->items);
    followed->items = NULL;
    followed->n_slots = 0;
    followed->generation = 0;
}

/* The item that there is for the pool, taken out, or a new one. */
static struct followed *take(struct followed_pools *followed, const struct pool_entry *entry) {
    struct followed **old =
        followed->items && entry->slot < followed->n_slots ? &followed->items[entry->slot] : NULL;
    struct followed *item = old && *old && (*old)->pool == entry->pool ? *old : NULL;
    if (item) {
        *old = NULL;
        return item;
    }
    item = calloc(1, followed->item_bytes);
    if (item) {
        item->pool = entry->pool;
    }
    return item;
}

bool followed_look(struct followed_pools *followed, const struct pool_list *list) {
    if (followed->generation == list->generation) {
        return true;
    }
    struct followed **items = calloc(list->n_slots + 1, sizeof(struct followed *));
    bool room = items != NULL;
    for (size_t i = 0; room && i < list->n; i++) {
        struct followed *item = take(followed, &list->entries[i]);
        items[list->entries[i].slot] = item;
        room = item != NULL;
    }
    followed_drop(followed);
    followed->items = items;
    followed->n_slots = items ? list->n_slots : 0;
    followed->generation = room ? list->generation : 0;
    return room;
}
