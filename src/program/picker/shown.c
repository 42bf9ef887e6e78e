/* A look at the set, and at each pool of it. */
#include "program/picker/shown.h"

struct pick_shown_list pick_shown_look(struct pool_set_reader *pools, struct arena *arena) {
    const struct pool_list *list = pool_set_look(pools);
    struct pick_shown_list shown = {.named = list->is_list};
    shown.items = arena_calloc(arena, list->n + 1, sizeof(*shown.items));
    for (size_t i = 0; shown.items && i < list->n; i++) {
        struct pool_reader *reader = pool_set_reader_of(pools, &list->entries[i]);
        if (reader) {
            struct pick_shown *pool = &shown.items[shown.n++];
            pool->entry = &list->entries[i];
            pool->snapshot = pool_look(reader);
            pool_read(pool->entry->pool, &pool->numbers);
        }
    }
    return shown;
}

struct str pick_shown_name(const struct pick_shown *pool) {
    const struct pool_spec *spec = pool->snapshot->spec;
    return pool->entry->name.len > 0 || !spec ? pool->entry->name : spec->name;
}

void pick_shown_label(const struct metric_text *text, const struct pick_shown_list *list,
                      const struct pick_shown *pool, struct buf *labels) {
    buf_init(labels, text->out->arena, ENDPOINT_TEXT_BYTES + 64);
    if (list->named) {
        metric_label_add(labels, "pool", pool->entry->name);
    }
}
