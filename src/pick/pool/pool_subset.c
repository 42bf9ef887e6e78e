/* Choosing within a subset: its addresses are looked up in the snapshot, and the best of those that
 * are there is kept. Without a lock: whoever takes the result looks, under it, whether it still
 * holds. */
#include <assert.h>
#include <stdlib.h>

#include "pick/pool/state.h"

/* ---- the best -------------------------------------------------------------------------------- */

static void consider(struct pool_best *best, struct dice *dice, struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    if (rank == ENDPOINT_OUT) {
        return;
    }
    uint64_t key = (uint64_t)rank << 32 | dice_roll(dice) >> 32;
    if (best->n == best->most && key >= best->keys[best->n - 1]) {
        return;
    }
    size_t at = best->n < best->most ? best->n++ : best->n - 1;
    for (; at > 0 && best->keys[at - 1] > key; at--) {
        best->keys[at] = best->keys[at - 1];
        best->endpoints[at] = best->endpoints[at - 1];
    }
    best->keys[at] = key;
    best->endpoints[at] = endpoint;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Two lists have numbers that no member has been seen with: reader->list, and the one before. */
static enum status begin_lists(struct pool_reader *reader, struct error *err) {
    uint32_t n = reader->snapshot->n_members;
    if (reader->n_seen < n || reader->list > UINT32_MAX - 2) {
        uint32_t *seen = calloc((size_t)n + 1, sizeof(*seen));
        if (!seen) {
            return error_set(err, ST_NO_MEMORY, "no memory for a subset of %u endpoints", n);
        }
        free(reader->seen);
        reader->seen = seen;
        reader->n_seen = n;
        reader->list = 0;
    }
    reader->list += 2;
    return ST_OK;
}

/* Marks the members of the first of two lists. */
static void mark(struct pool_reader *reader, const struct subset *subset) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member = pool_snapshot_named(snapshot, &subset->items[i], &n);
        for (; n > 0; n--, member++) {
            reader->seen[member - snapshot->members] = reader->list - 1;
        }
    }
}

static void consider_member(struct pool_reader *reader, const struct pool_member *member,
                            struct pool_best *best) {
    if (best->choice) {
        pool_add_candidate(&reader->view, best->choice,
                           (uint32_t)(member - reader->snapshot->members));
    } else {
        consider(best, &reader->dice, member->endpoint);
    }
}

/* Considers the members of `subset`, each once, if it is `marked` or need not be. */
static void consider_all(struct pool_reader *reader, const struct subset *subset, bool marked,
                         struct pool_best *best) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member = pool_snapshot_named(snapshot, &subset->items[i], &n);
        for (; n > 0; n--, member++) {
            uint32_t *seen = &reader->seen[member - snapshot->members];
            if (marked ? *seen == reader->list - 1 : *seen != reader->list) {
                *seen = reader->list;
                consider_member(reader, member, best);
            }
        }
    }
}

enum status pool_choose_of_subsets(struct pool_reader *reader, const struct subset *one,
                                   const struct subset *other, struct pool_best *best,
                                   struct error *err) {
    enum status st = begin_lists(reader, err);
    if (st != ST_OK) {
        return st;
    }
    const struct subset *last = other ? other : one;
    assert(last);
    if (one && other) {
        mark(reader, one);
    }
    consider_all(reader, last, one && other, best);
    return ST_OK;
}
