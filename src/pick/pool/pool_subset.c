/* Choosing within a subset: its addresses are looked up in the snapshot, and the best of those that
 * are there is kept. Without a lock: whoever takes the result looks, under it, whether it still
 * holds. */
#include <assert.h>
#include <stdlib.h>

#include "pick/pool/state.h"

/* ---- the best -------------------------------------------------------------------------------- */

static void shortlist_add(struct pool_shortlist *best, struct prng *prng,
                          struct endpoint *endpoint) {
    uint32_t rank = endpoint_rank(endpoint);
    if (rank == ENDPOINT_OUT) {
        return;
    }
    uint64_t key = (uint64_t)rank << 32 | prng_next(prng) >> 32;
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
static enum status begin_subset_marks(struct pool_reader *reader, struct error *err) {
    uint32_t n = reader->snapshot->n_members;
    if (reader->n_subset_marks < n || reader->subset_mark > UINT32_MAX - 2) {
        uint32_t *member_mark = calloc((size_t)n + 1, sizeof(*member_mark));
        if (!member_mark) {
            return error_set(err, ST_NO_MEMORY, "no memory for a subset of %u endpoints", n);
        }
        free(reader->subset_marks);
        reader->subset_marks = member_mark;
        reader->n_subset_marks = n;
        reader->subset_mark = 0;
    }
    reader->subset_mark += 2;
    return ST_OK;
}

/* Marks the members of the first of two lists. */
static void mark_subset_members(struct pool_reader *reader, const struct subset *subset) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member =
            pool_snapshot_find_listed(snapshot, &subset->items[i], &n);
        for (; n > 0; n--, member++) {
            reader->subset_marks[member - snapshot->members] = reader->subset_mark - 1;
        }
    }
}

static void shortlist_add_member(struct pool_reader *reader, const struct pool_member *member,
                                 struct pool_shortlist *best) {
    if (best->candidates) {
        pool_add_candidate(&reader->view, best->candidates,
                           (uint32_t)(member - reader->snapshot->members));
    } else {
        shortlist_add(best, &reader->prng, member->endpoint);
    }
}

/* Considers the members of `subset`, each once, if it is `marked` or need not be. */
static void shortlist_add_subset(struct pool_reader *reader, const struct subset *subset,
                                 bool marked, struct pool_shortlist *best) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member =
            pool_snapshot_find_listed(snapshot, &subset->items[i], &n);
        for (; n > 0; n--, member++) {
            uint32_t *member_mark = &reader->subset_marks[member - snapshot->members];
            if (marked ? *member_mark == reader->subset_mark - 1
                       : *member_mark != reader->subset_mark) {
                *member_mark = reader->subset_mark;
                shortlist_add_member(reader, member, best);
            }
        }
    }
}

enum status pool_choose_from_subsets(struct pool_reader *reader, const struct subset *one,
                                     const struct subset *other, struct pool_shortlist *best,
                                     struct error *err) {
    enum status st = begin_subset_marks(reader, err);
    if (st != ST_OK) {
        return st;
    }
    const struct subset *last = other ? other : one;
    assert(last);
    if (one && other) {
        mark_subset_members(reader, one);
    }
    shortlist_add_subset(reader, last, one && other, best);
    return ST_OK;
}
