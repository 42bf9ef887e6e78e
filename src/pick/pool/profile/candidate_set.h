/* The candidates of a choice and what is known of each, in columns: what is known of candidate i is
 * at place i of each. A column is an array of numbers, so that going through a thousand endpoints
 * is a loop that the compiler turns into vector instructions.
 *
 * The columns are not the choice's own until candidates are taken away (they are those of
 * pick/pool/view.h), so whoever takes some away goes through candidate_set_filter or
 * candidate_set_select.
 *
 * Counts are floats: whole numbers, exact up to 16 million.
 *
 * Thread: one `struct candidate_set` is of one thread. */
#ifndef SLUICE_PICK_POOL_PROFILE_CANDIDATE_SET_H
#define SLUICE_PICK_POOL_PROFILE_CANDIDATE_SET_H

#include "core/base/random.h"
#include "pick/pool/prefix/prompt.h"
#include "pick/pool/snapshot.h"

/* For functions of loops under "#pragma omp simd": gcc compiles them twice, and on a processor with
 * AVX2 the one with eight numbers at a time runs. It has no fused multiplications and additions in
 * it, so both come to the same.
 *
 * Elsewhere there is one of each: clang 14 gives what chooses between two a global name even if the
 * function is static, and sanitizers must not look at what runs before they are there. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMD_TARGETS __attribute__((target_clones("avx2", "default")))
#else
#define SIMD_TARGETS
#endif

struct candidate_columns {
#define COLUMN(type, name) type *name;
#include "pick/pool/profile/candidate_columns.def"
#undef COLUMN
};

/* The low bits of a time in 64ths of a second; never 0. */
static inline uint32_t candidate_clock_ticks(uint64_t ns) {
    uint32_t clock = (uint32_t)(ns / (1000000000 / 64));
    return clock != 0 ? clock : 1;
}

/* Who was lately sent how the request's prompt begins (pick/pool/prefix/table.h). */
struct prefix_matches {
    uint32_t n_blocks; /* that the prompt has; 0: it isn't known, or shorter than a block */
    uint32_t n;
    struct {
        uint32_t member;
        uint32_t n_blocks; /* of the first, 1 at least */
    } hits[PREFIX_MAX_HOSTS];
};

/* Candidates that are looked at together: a block is 64 of them, or a few less at the end. */
enum { CANDIDATE_BLOCK = 64 };
struct candidate_range {
    uint32_t from, to;
};

/* What a scorer makes of a range of candidates. Those of two ranges become those of both: the least
 * of the leasts, the greatest of the greatest, and sums. */
struct range_stats {
    float min, max, sum;
    uint32_t n;
};

struct candidate_set {
    const struct pool_snapshot *snapshot;
    struct str model;   /* as the endpoint will see it; ptr NULL: none is named */
    struct str session; /* whose requests belong together; ptr NULL: none is named */
    const struct prefix_matches *prefix;
    struct pool_headers headers; /* find NULL: they aren't known */
    struct prng *prng;           /* whose numbers decide what is left to chance */
    uint64_t now_ns;

    uint32_t n;        /* candidates */
    uint32_t adapters; /* LoRA: what any of them may have, in one number
                          (pick/pool/endpoint/load.h) */
    const struct candidate_columns *columns;
    const uint32_t *index_of; /* of each member, as long as none was taken away; then NULL */
    float *score;   /* of each candidate, the sum so far; counts from the first scorer on */
    float *scratch; /* of each candidate: a plugin's own while it runs */
    const struct candidate_columns *filtered_columns; /* for the columns of those that are left */
    struct score_cache *score_cache; /* sums from before (score_cache.h); NULL: none are kept */
    uint64_t *modified_blocks; /* a bit for each block: scores in it are this request's own; or
                                  NULL */
};

static inline const struct pool_member *candidate_set_member(const struct candidate_set *candidates,
                                                             uint32_t i) {
    return &candidates->snapshot->members[candidates->columns->member[i]];
}

/* Where a member is among the candidates: for a few of them, since all are gone through where some
 * were taken away. Returns: choice->n when it is none. */
uint32_t candidate_set_index_of(const struct candidate_set *candidates, uint32_t member);

/* ---- who is a candidate ---------------------------------------------------------------------- */

/* What is at place `from` of one is put at place `to` of the other, or of the same. */
void candidate_columns_copy(const struct candidate_columns *out, uint32_t to,
                            const struct candidate_columns *columns, uint32_t from);

/* For filters: keeps those of which `keep` is true, in their order. */
void candidate_set_filter(struct candidate_set *candidates, const void *parameters,
                          bool (*keep)(const void *parameters,
                                       const struct candidate_set *candidates, uint32_t i));
/* For filters: keeps only candidate `i`. */
void candidate_set_select(struct candidate_set *candidates, uint32_t i);
/* Takes away candidate `i`, after scores were added; others change their places. */
void candidate_set_remove(struct candidate_set *candidates, uint32_t i);

/* ---- for scorers ----------------------------------------------------------------------------- */

/* For one or a few. */
static inline void candidate_set_add_score(struct candidate_set *candidates, uint32_t i,
                                           float number) {
    candidates->score[i] += number;
    if (candidates->modified_blocks) {
        candidates->modified_blocks[i / CANDIDATE_BLOCK / 64] |= UINT64_C(1)
                                                                 << i / CANDIDATE_BLOCK % 64;
    }
}

/* All scores may become others. */
void candidate_set_mark_modified_blocks(struct candidate_set *candidates); /* with `touched` */
static inline void candidate_set_mark_all_modified(struct candidate_set *candidates) {
    if (candidates->modified_blocks) {
        candidate_set_mark_modified_blocks(candidates);
    }
}

/* Each adds to each candidate's score what it says, times `weight`. `values` are of the candidates;
 * none is NaN. */

/* Less is better: the least of the values, which aren't below 0, becomes 1, the greatest 0, and
 * those between lie in between. All are 1 where all are the same. */
void candidate_set_score_lower_is_better(struct candidate_set *candidates, const float *values,
                                         float weight);
/* 1 for those of which `matches` is true. */
void candidate_set_score_matching(
    struct candidate_set *candidates, const void *parameters, float weight,
    bool (*matches)(const void *parameters, const struct candidate_set *candidates, uint32_t i));

/* The same in two steps, of which the second adds to `out`: what is to be known of all of a range,
 * and what that makes of some of them. Only the least and the greatest are looked for. The range is
 * not empty, and its values aren't below 0. */
void range_stats_of_column(const float *values, struct candidate_range range,
                           struct range_stats *out);
void score_range_lower_is_better(const float *values, const struct range_stats *stats, float weight,
                                 struct candidate_range range, float *out);
/* Adds as much to all of a range. */
void score_range_constant(float weight, struct candidate_range range, float *out);
/* 0 becomes 1, the greatest of the values 0. All are 1 where all are 0. */
void score_range_below_max(const float *values, const struct range_stats *stats, float weight,
                           struct candidate_range range, float *out);

/* ---- numbers about a column ------------------------------------------------------------------ */

/* -INFINITY where there are no candidates. */
float candidate_set_max(const struct candidate_set *candidates, const float *values);

/* The greatest of all. */
struct column_max {
    float value;
    uint32_t n;                   /* how many are this one; 0: none is a number */
    struct candidate_range range; /* all of them are in it */
};

struct column_max column_max_find(const struct candidate_set *candidates, const float *values);
/* The place of one of them, `nth` others of which stand before it; 0 where there are not so
 * many. */
uint32_t column_max_index(const struct column_max *best, const float *values, uint32_t nth);

#endif
