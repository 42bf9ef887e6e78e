/* Caches sums of scores by block. */
#include "pick/pool/profile/score_cache.h"

#include <stdlib.h>
#include <string.h>

static uint32_t n_blocks(const struct score_cache *cache) {
    return (cache->n + CANDIDATE_BLOCK - 1) / CANDIDATE_BLOCK;
}

static size_t n_words(const struct score_cache *cache) {
    return (n_blocks(cache) + 63) / 64;
}

static struct candidate_range range_of(const struct score_cache *cache, uint32_t block) {
    uint32_t from = block * CANDIDATE_BLOCK, left = cache->n - from;
    return (struct candidate_range){from, from + (left < CANDIDATE_BLOCK ? left : CANDIDATE_BLOCK)};
}

/* The stats of all candidates, followed by those of each block. */
static struct range_stats *stats_of_scorer(const struct score_cache *cache, size_t scorer) {
    return &cache->stats[scorer * (1 + n_blocks(cache))];
}

void score_cache_fini(struct score_cache *cache) {
    free(cache->memory);
    *cache = (struct score_cache){.profile = NULL};
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void mark_all_blocks(const struct score_cache *cache, uint64_t *bits) {
    for (uint32_t i = 0; i < n_blocks(cache); i++) {
        bits[i / 64] |= UINT64_C(1) << i % 64;
    }
}

/* Allocates one array of eight-byte words: bits, stats, sums. */
static bool rebuild_cache(struct score_cache *cache, const struct profile *profile,
                          const struct candidate_set *candidates) {
    score_cache_fini(cache);
    struct score_cache own = {.profile = profile,
                              .profile_generation = candidates->snapshot->generation,
                              .n = candidates->n};
    size_t n_bits = n_words(&own), n_sums = (size_t)n_blocks(&own) * CANDIDATE_BLOCK;
    size_t n_facts = profile->n_scorers * (1 + n_blocks(&own));
    own.memory = calloc(1, 2 * n_bits * sizeof(*own.changed_blocks) +
                               2 * n_sums * sizeof(*own.sums) + n_facts * sizeof(*own.stats));
    if (!own.memory) {
        return false;
    }
    own.changed_blocks = own.memory;
    own.modified_blocks = own.changed_blocks + n_bits;
    own.stats = (struct range_stats *)(void *)(own.modified_blocks + n_bits);
    own.sums = (float *)(void *)(own.stats + n_facts);
    own.score = own.sums + n_sums;
    mark_all_blocks(&own, own.changed_blocks);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct plugin_cacheable *plugin = profile->scorers[i].plugin->cacheable;
        own.depends_on_time = own.depends_on_time || (plugin && plugin->depends_on_time);
        own.depends_on_model = own.depends_on_model || (plugin && plugin->depends_on_model);
    }
    *cache = own;
    return true;
}

/* Inputs that are not from the endpoints. Returns: whether one that matters has changed. */
static bool update_request_inputs(struct score_cache *cache,
                                  const struct candidate_set *candidates) {
    uint32_t clock_ticks = candidate_clock_ticks(candidates->now_ns);
    bool has_model = candidates->model.ptr != NULL;
    bool other = (cache->depends_on_time && clock_ticks != cache->clock_ticks) ||
                 (cache->depends_on_model && has_model != cache->has_model);
    cache->clock_ticks = clock_ticks;
    cache->has_model = has_model;
    return other;
}

/* ---- range stats ----------------------------------------------------------------------------- */

static bool are_stats_equal(const struct range_stats *one, const struct range_stats *other) {
    return one->min <= other->min && one->min >= other->min && one->max <= other->max &&
           one->max >= other->max && one->sum <= other->sum && one->sum >= other->sum &&
           one->n == other->n;
}

static struct range_stats merge_stats(const struct range_stats *of_blocks, uint32_t n) {
    struct range_stats all = RANGE_STATS_EMPTY;
    for (uint32_t i = 0; i < n; i++) {
        range_stats_merge(&all, &of_blocks[i]);
    }
    return all;
}

/* Returns: whether they have changed. */
static bool collect_block_stats(const struct score_cache *cache,
                                const struct candidate_set *candidates,
                                const struct profile_step *step, struct range_stats *stats,
                                uint32_t block) {
    struct range_stats now = {0};
    step->plugin->cacheable->collect_stats(step->parameters, candidates, range_of(cache, block),
                                           &now);
    bool same = are_stats_equal(stats, &now);
    *stats = now;
    return !same;
}

/* Returns: whether the stats of all candidates have changed. */
static bool collect_scorer_stats(const struct score_cache *cache,
                                 const struct candidate_set *candidates, size_t scorer) {
    const struct profile_step *step = &cache->profile->scorers[scorer];
    const struct plugin_cacheable *plugin = step->plugin->cacheable;
    struct range_stats *stats = stats_of_scorer(cache, scorer);
    bool others = false;
    for (size_t i = 0; plugin && plugin->collect_stats && i < n_words(cache); i++) {
        for (uint64_t left = cache->changed_blocks[i]; left != 0; left &= left - 1) {
            uint32_t block = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(left);
            others =
                collect_block_stats(cache, candidates, step, stats + 1 + block, block) || others;
        }
    }
    if (!others) {
        return false;
    }
    struct range_stats all = merge_stats(stats + 1, n_blocks(cache));
    if (plugin->normalize) {
        plugin->normalize(&all);
    }
    bool same = are_stats_equal(stats, &all);
    *stats = all;
    return !same;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void score_block(const struct score_cache *cache, const struct candidate_set *candidates,
                        uint32_t block) {
    const struct profile *profile = cache->profile;
    struct candidate_range range = range_of(cache, block);
    memset(&cache->sums[range.from], 0, CANDIDATE_BLOCK * sizeof(*cache->sums));
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct profile_step *step = &profile->scorers[i];
        if (step->plugin->cacheable) {
            step->plugin->cacheable->score_range(step->parameters, candidates,
                                                 stats_of_scorer(cache, i), step->weight, range,
                                                 cache->sums);
        }
    }
}

/* Recomputes the sums of changed blocks and copies them to the scores. */
static void update_scores(const struct score_cache *cache, const struct candidate_set *candidates,
                          bool all) {
    for (size_t i = 0; i < cache->profile->n_scorers; i++) {
        all = collect_scorer_stats(cache, candidates, i) || all;
    }
    if (all) {
        mark_all_blocks(cache, cache->changed_blocks);
    }
    for (size_t i = 0; i < n_words(cache); i++) {
        uint64_t left = cache->changed_blocks[i] | cache->modified_blocks[i];
        for (; left != 0; left &= left - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(left), block = (uint32_t)(i * 64) + bit;
            if (cache->changed_blocks[i] >> bit & 1) {
                score_block(cache, candidates, block);
            }
            size_t from = (size_t)block * CANDIDATE_BLOCK;
            memcpy(&cache->score[from], &cache->sums[from], CANDIDATE_BLOCK * sizeof(*cache->sums));
        }
        cache->changed_blocks[i] = cache->modified_blocks[i] = 0;
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

bool score_cache_score(struct score_cache *cache, const struct profile *profile,
                       struct candidate_set *candidates) {
    if (candidates->n < SCORE_CACHE_MIN_CANDIDATES) {
        return false;
    }
    bool other = cache->profile != profile || cache->n != candidates->n ||
                 cache->profile_generation != candidates->snapshot->generation;
    if (other && !rebuild_cache(cache, profile, candidates)) {
        return false;
    }
    update_scores(cache, candidates, update_request_inputs(cache, candidates));
    candidates->score = cache->score;
    candidates->modified_blocks = cache->modified_blocks;
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct profile_step *step = &profile->scorers[i];
        const struct plugin_cacheable *plugin = step->plugin->cacheable;
        if (!plugin) {
            step->plugin->score(step->parameters, candidates, step->weight);
        } else if (plugin->adjust_scores) {
            plugin->adjust_scores(step->parameters, candidates, step->weight);
        }
    }
    return true;
}
