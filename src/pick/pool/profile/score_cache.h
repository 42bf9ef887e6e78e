/* Sums of scores that are kept from one pick of a reader to the next. Most of what scorers say
 * comes from what is known of the endpoints, and between two picks that changes for two or three of
 * a thousand. So the sums of the scorers that have a `standing` (plugin.h) stand here, those of the
 * blocks (candidate_set.h) where something has changed are made anew, and each request's own are
 * added to them and taken back before the next.
 *
 * Should facts about all candidates have changed, as the length of the longest queue, all sums are
 * made anew. But for rounding they are always what they were if nothing was kept.
 *
 * Of few candidates it is quicker to look at all than to look for blocks. Theirs are the sums of
 * the scorers that are steady, which means: not of counts (plugin.h), for all candidates or none.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PROFILE_SCORE_CACHE_H
#define SLUICE_PICK_POOL_PROFILE_SCORE_CACHE_H

#include "pick/pool/profile/profile.h"

/* Fewer candidates than this are few. */
enum { SCORE_CACHE_MIN_CANDIDATES = 3 * CANDIDATE_BLOCK };

/* Zeroed memory keeps nothing. */
struct score_cache {
    const struct profile *profile;          /* whose sums they are; NULL: nothing is kept */
    uint64_t profile_generation;            /* the snapshot's generation: a profile lives as long as
                                              that */
    uint32_t n;                             /* candidates */
    bool depends_on_time, depends_on_model; /* some of its scorers' numbers (plugin.h) */
    uint32_t clock_ticks;                   /* candidate_clock_ticks then */
    bool has_model;                         /* the request named a model */
    bool only_counts_changed;               /* of few: nothing has changed since but counts */
    bool has_count_independent_scorer;      /* of its scorers */
    uint64_t n_reused;                      /* of few: picks for which no sum was made anew */
    void *memory;                           /* of the following */
    float *sums, *score;       /* of each candidate: without and with the request's own */
    struct range_stats *stats; /* of each scorer: that hold now, then those of each block */
    uint64_t *changed_blocks, *modified_blocks; /* a bit for each block */
};

void score_cache_fini(struct score_cache *cache);
/* Something is known of the candidate at this place that was not before; `steady`: it is a
 * count. */
static inline void score_cache_invalidate(struct score_cache *cache, uint32_t pos,
                                          bool only_counts_changed) {
    cache->only_counts_changed = cache->only_counts_changed && only_counts_changed;
    if (pos < cache->n) {
        uint32_t block = pos / CANDIDATE_BLOCK;
        cache->changed_blocks[block / 64] |= UINT64_C(1) << block % 64;
    }
}

/* Scores the candidates, of which none was taken away: choice->score are its own from now on.
 * Returns: false when there is no memory for it, or nothing to be kept, and nothing has
 * happened. */
bool score_cache_score(struct score_cache *cache, const struct profile *profile,
                       struct candidate_set *candidates) __attribute__((warn_unused_result));

#endif
