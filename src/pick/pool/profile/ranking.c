/* A sorted array in which an item moves by one level at a time. */
#include "pick/pool/profile/ranking.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/checked.h"

enum { FIRST_CAP = 16 };
static const uint32_t NO_LEVEL = UINT32_MAX;

void ranking_fini(struct ranking *ranking) {
    free(ranking->order);
    free(ranking->levels);
    *ranking = (struct ranking){0};
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* There are at most as many levels as items, so a free one is always left. */
static uint32_t level_new(struct ranking *ranking, uint32_t key, uint32_t begin) {
    uint32_t level = ranking->unused;
    ranking->unused = ranking->levels[level].begin;
    ranking->levels[level] = (struct ranking_level){.key = key, .begin = begin, .end = begin + 1};
    return level;
}

static void level_drop_empty(struct ranking *ranking, uint32_t level) {
    if (ranking->levels[level].begin == ranking->levels[level].end) {
        ranking->levels[level].begin = ranking->unused;
        ranking->unused = level;
    }
}

/* The level of the item at `place`, if it has this key. */
static uint32_t level_at(const struct ranking *ranking, uint32_t pos, uint32_t key) {
    uint32_t level = pos < ranking->n ? ranking->order[pos]->level : NO_LEVEL;
    return level != NO_LEVEL && ranking->levels[level].key == key ? level : NO_LEVEL;
}

bool ranking_reserve(struct ranking *ranking, size_t n) {
    if (n <= ranking->cap) {
        return true;
    }
    size_t cap = n < FIRST_CAP ? FIRST_CAP : n + n / 2;
    size_t n_bytes;
    if (cap >= UINT32_MAX || !checked_mul(cap, sizeof(struct ranking_level), &n_bytes)) {
        return false;
    }
    struct ranked **order = realloc(ranking->order, cap * sizeof(struct ranked *));
    if (order) {
        ranking->order = order;
    }
    struct ranking_level *levels = order ? realloc(ranking->levels, n_bytes) : NULL;
    if (!levels) {
        return false;
    }
    ranking->levels = levels;
    for (uint32_t i = ranking->cap; i < cap; i++) {
        levels[i].begin = i + 1 < cap ? i + 1 : ranking->cap > 0 ? ranking->unused : NO_LEVEL;
    }
    ranking->unused = ranking->cap;
    ranking->cap = (uint32_t)cap;
    return true;
}

/* ---- positions ------------------------------------------------------------------------------- */

static void put_item(struct ranking *ranking, struct ranked *item, uint32_t pos) {
    ranking->order[pos] = item;
    item->pos = pos;
}

static void swap_items(struct ranking *ranking, uint32_t a, uint32_t b) {
    struct ranked *item = ranking->order[a];
    put_item(ranking, ranking->order[b], a);
    put_item(ranking, item, b);
}

void ranking_insert(struct ranking *ranking, struct ranked *item, uint32_t key) {
    assert(ranking->n < ranking->cap);
    uint32_t hole = ranking->n;
    while (hole > 0) {
        struct ranking_level *level = &ranking->levels[ranking->order[hole - 1]->level];
        if (level->key <= key) {
            break;
        }
        put_item(ranking, ranking->order[level->begin], hole);
        hole = level->begin;
        level->begin++;
        level->end++;
    }
    uint32_t below = hole > 0 ? level_at(ranking, hole - 1, key) : NO_LEVEL;
    if (below != NO_LEVEL) {
        ranking->levels[below].end++;
    }
    item->level = below != NO_LEVEL ? below : level_new(ranking, key, hole);
    put_item(ranking, item, hole);
    ranking->n++;
}

void ranking_remove(struct ranking *ranking, struct ranked *item) {
    struct ranking_level *own = &ranking->levels[item->level];
    uint32_t hole = --own->end;
    swap_items(ranking, item->pos, hole);
    level_drop_empty(ranking, item->level);
    while (hole + 1 < ranking->n) {
        struct ranking_level *level = &ranking->levels[ranking->order[hole + 1]->level];
        put_item(ranking, ranking->order[level->end - 1], hole);
        level->begin--;
        hole = --level->end;
    }
    ranking->n--;
}

void ranking_increment(struct ranking *ranking, struct ranked *item) {
    struct ranking_level *from = &ranking->levels[item->level];
    uint32_t key = from->key + 1, last = --from->end;
    assert(key > 0);
    swap_items(ranking, item->pos, last);
    level_drop_empty(ranking, item->level);
    uint32_t above = level_at(ranking, last + 1, key);
    if (above != NO_LEVEL) {
        ranking->levels[above].begin--;
    }
    item->level = above != NO_LEVEL ? above : level_new(ranking, key, last);
}

void ranking_decrement(struct ranking *ranking, struct ranked *item) {
    struct ranking_level *from = &ranking->levels[item->level];
    assert(from->key > 0);
    uint32_t key = from->key - 1, first = from->begin++;
    swap_items(ranking, item->pos, first);
    level_drop_empty(ranking, item->level);
    uint32_t below = first > 0 ? level_at(ranking, first - 1, key) : NO_LEVEL;
    if (below != NO_LEVEL) {
        ranking->levels[below].end++;
    }
    item->level = below != NO_LEVEL ? below : level_new(ranking, key, first);
}

/* ---- lowest ---------------------------------------------------------------------------------- */

size_t ranking_find_lowest(struct ranking *ranking, struct prng *prng, size_t most,
                           struct ranked **out) {
    uint32_t n = most < ranking->n ? (uint32_t)most : ranking->n;
    for (uint32_t i = 0; i < n; i++) {
        /* items from here to the end of the level are equal: choose any of them */
        uint32_t end = ranking->levels[ranking->order[i]->level].end;
        swap_items(ranking, i, i + prng_below(prng, end - i));
        out[i] = ranking->order[i];
    }
    return n;
}
