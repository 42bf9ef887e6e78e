/* A look at the set, and at each pool of it. */
#include "program/picker/admin_pools.h"

struct pick_admin_pools pick_admin_pools_load(struct pool_set_reader *pools, struct arena *arena) {
    const struct pool_list *list = pool_set_reader_refresh(pools);
    struct pick_admin_pools pools_shown = {.named = list->is_list};
    pools_shown.items = arena_calloc(arena, list->n + 1, sizeof(*pools_shown.items));
    for (size_t i = 0; pools_shown.items && i < list->n; i++) {
        struct pool_reader *reader = pool_set_reader_get(pools, &list->entries[i]);
        if (reader) {
            struct pick_admin_pool *pool = &pools_shown.items[pools_shown.n++];
            pool->entry = &list->entries[i];
            pool->snapshot = pool_reader_refresh(reader);
            pool_get_stats(pool->entry->pool, &pool->numbers);
        }
    }
    return pools_shown;
}

struct str pick_admin_pool_name(const struct pick_admin_pool *pool) {
    const struct pool_spec *spec = pool->snapshot->spec;
    return pool->entry->name.len > 0 || !spec ? pool->entry->name : spec->name;
}

void pick_admin_pool_begin_labels(const struct metric_text *text,
                                  const struct pick_admin_pools *list,
                                  const struct pick_admin_pool *pool, struct buf *labels) {
    buf_init(labels, text->out->arena, ENDPOINT_TEXT_BYTES + 64);
    if (list->named) {
        metric_label_add(labels, "pool", pool->entry->name);
    }
}
