/* Parses subsets. */
#include "pick/pool/subset.h"

#include "core/base/checked.h"

enum { FIRST_CAP = 16 };

void subset_init(struct subset *subset, bool any_port) {
    *subset = (struct subset){.any_port = any_port};
}

static enum status grow_items(struct subset *subset, struct arena *arena, struct error *err) {
    size_t larger, n_bytes, size = sizeof(*subset->items);
    struct endpoint_address *items = NULL;
    if (subset->n < subset->cap) {
        return ST_OK;
    }
    if (checked_mul(subset->cap, 2, &larger) && checked_add(larger, FIRST_CAP, &larger) &&
        checked_mul(larger, size, &n_bytes)) {
        items = arena_realloc(arena, subset->items, subset->cap * size, n_bytes);
    }
    if (!items) {
        return error_no_memory(err, "a subset of more than %zu endpoints", subset->n);
    }
    subset->items = items;
    subset->cap = larger;
    return ST_OK;
}

enum status subset_add(struct subset *subset, struct arena *arena, struct str text,
                       struct error *err) {
    struct endpoint_address address;
    if (!endpoint_address_parse(text, &address) &&
        !(subset->any_port && endpoint_address_parse_ip(text, &address))) {
        subset->n_unreadable++;
        return ST_OK;
    }
    enum status st = grow_items(subset, arena, err);
    if (st == ST_OK) {
        subset->items[subset->n++] = address;
    }
    return st;
}

enum status subset_add_list(struct subset *subset, struct arena *arena, struct str text,
                            struct error *err) {
    enum status st = ST_OK;
    while (text.ptr && st == ST_OK) {
        struct str item = str_trim(str_cut(&text, ','));
        if (item.len > 0) {
            st = subset_add(subset, arena, item, err);
        }
    }
    return st;
}

bool subset_has(const struct subset *subset, const struct endpoint_address *address) {
    for (size_t i = 0; i < subset->n; i++) {
        const struct endpoint_address *item = &subset->items[i];
        if (item->port == 0 ? endpoint_address_same_ip(item, address)
                            : endpoint_address_equal(item, address)) {
            return true;
        }
    }
    return false;
}
