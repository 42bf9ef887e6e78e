/* The score cache: sums of scores that a reader keeps from one pick to the next. Most scores depend
 * only on the endpoints, and between two picks two or three of a thousand endpoints change. So the
 * sums of the cacheable scorers (plugin.h) are kept, those of blocks (candidate_set.h) with changes
 * are recomputed, and each request's own scores are added to copies that are restored before the
 * next pick.
 *
 * When the range stats of all candidates have changed, as with the longest queue, all sums are
 * recomputed. Except for rounding the scores are those without a cache.
 *
 * With few candidates nothing is cached: a change or two affects nearly every block.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PROFILE_SCORE_CACHE_H
#define SLUICE_PICK_POOL_PROFILE_SCORE_CACHE_H

#include "pick/pool/profile/profile.h"

/* With fewer candidates nothing is cached. */
enum { SCORE_CACHE_MIN_CANDIDATES = 3 * CANDIDATE_BLOCK };

/* Zeroed memory is empty. */
struct score_cache {
    const struct profile *profile;          /* of the sums; NULL: empty */
    uint64_t profile_generation;            /* the snapshot's generation: a profile lives as long as
                                               its snapshot */
    uint32_t n;                             /* number of candidates */
    bool depends_on_time, depends_on_model; /* of any of its scorers (plugin.h) */
    uint32_t clock_ticks;                   /* when the sums were computed */
    bool has_model;                         /* of the request that they were computed for */
    void *memory;                           /* of the following arrays */
    float *sums, *score;       /* of each candidate: without and with the request's own scores */
    struct range_stats *stats; /* for each scorer: of all candidates, then of each block */
    uint64_t *changed_blocks, *modified_blocks; /* one bit for each block */
};

void score_cache_fini(struct score_cache *cache);
/* Column values of the candidate at this index have changed. */
static inline void score_cache_invalidate(struct score_cache *cache, uint32_t pos) {
    if (pos < cache->n) {
        uint32_t block = pos / CANDIDATE_BLOCK;
        cache->changed_blocks[block / 64] |= UINT64_C(1) << block % 64;
    }
}

/* Scores the candidates, of which none was removed: candidates->score then points into the cache.
 * Returns: false when there are few or memory is out; nothing has changed. */
bool score_cache_score(struct score_cache *cache, const struct profile *profile,
                       struct candidate_set *candidates) SLUICE_MUST_USE;

#endif
