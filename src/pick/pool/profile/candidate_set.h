/* The candidates of a pick, with what is known of them in parallel columns: candidate i is at index
 * i of each. A column is an array of numbers, so that a loop over a thousand endpoints compiles to
 * vector instructions.
 *
 * Until candidates are removed the columns are those of the reader's view (pick/pool/view.h) and
 * must not be changed: remove candidates with candidate_set_filter or candidate_set_select.
 *
 * Counts are floats: integers, exact up to 16 million.
 *
 * Thread: a `struct candidate_set` belongs to one thread. */
#ifndef SLUICE_PICK_POOL_PROFILE_CANDIDATE_SET_H
#define SLUICE_PICK_POOL_PROFILE_CANDIDATE_SET_H

#include "core/base/random.h"
#include "pick/pool/prefix/prompt.h"
#include "pick/pool/snapshot.h"

/* For functions with loops under "#pragma omp simd": gcc compiles them twice, and processors with
 * AVX2 run the version with vectors of eight floats. It uses no fused multiply-add, so both give
 * the same results.
 *
 * Not with clang 14, which exports the dispatching function even if it is static, nor with
 * sanitizers, which must not instrument code that runs before they are initialized. */
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

/* Time in 64ths of a second, low bits only; never 0. */
static inline uint32_t candidate_clock_ticks(uint64_t ns) {
    uint32_t clock = (uint32_t)(ns / (1000000000 / 64));
    return clock != 0 ? clock : 1;
}

/* The endpoints that were recently sent the beginning of the request's prompt
 * (pick/pool/prefix/table.h). */
struct prefix_matches {
    uint32_t n_blocks; /* of the prompt; 0: unknown */
    uint32_t n;
    /* By the window (pick/pool/prefix/burst.h), with regard to the load: the bound of affinities
       does not hold. */
    bool is_placed;
    uint32_t block_bytes;
    struct {
        uint32_t member;
        uint32_t n_blocks; /* of the first blocks, 1 or more */
    } hits[PREFIX_MAX_HOSTS];
};

/* The endpoints that were recently sent pictures, sounds and videos of the request. */
enum { MEDIA_MAX_HITS = 64 };
struct media_matches {
    uint32_t n_items; /* of the request, each once */
    uint32_t n;
    struct {
        uint32_t member;
        uint32_t n_items; /* 1 or more */
        uint16_t n_by_kind[N_MEDIA_KINDS];
    } hits[MEDIA_MAX_HITS];
};

/* Candidates are processed in blocks of 64, the last of which may be shorter. */
enum { CANDIDATE_BLOCK = 64 };
struct candidate_range {
    uint32_t from, to;
};

/* Range stats: what a scorer aggregates over a range of candidates. Two ranges are merged by the
 * minimum of the minima, the maximum of the maxima, and sums. */
struct range_stats {
    float min, max, sum;
    uint32_t n;
};

struct session_choice;
struct plugin_clock;

struct candidate_set {
    const struct pool_snapshot *snapshot;
    struct str model;                      /* as the endpoint will see it; ptr NULL: none */
    struct str session;                    /* for session affinity; ptr NULL: none */
    const struct prefix_matches *prefixes; /* by the profile's producers */
    const struct media_matches *media;     /* likewise, by those of media */
    const struct pool_member *peer;        /* of an earlier stage of the request; NULL: none, or
                                              unknown */
    const struct endpoint *reserved;       /* has a slot for this request, which is counted among
                                              its requests in flight; NULL: none */
    float reserved_tokens;                 /* and among its tokens */
    struct session_choice *sessions;       /* of each table of sessions; NULL: none */
    struct pool_headers headers;           /* find NULL: unknown */
    struct prng *prng;                     /* for random choices */
    uint64_t now_ns;
    uint32_t n_tokens; /* estimate of the prompt; 0: unknown */

    uint32_t n;           /* number of candidates */
    bool is_summed;       /* the following is valid; false once candidates were removed */
    float n_in_flight;    /* sum of the column in_flight */
    float affinity_limit; /* plugin.h; 0: not computed for these candidates */
    uint32_t adapters;    /* LoRA: union of all endpoints' summaries (pick/pool/endpoint/load.h) */
    const struct candidate_columns *columns;
    const uint32_t *index_of; /* by member: its index; NULL once candidates were removed */
    float *score;             /* of each candidate; valid from the first scorer on */
    float *scratch;           /* of each candidate; free for the plugin that runs */
    uint32_t *order;          /* two for each candidate; likewise */
    const struct candidate_columns *filtered_columns; /* memory for the columns of the remaining
                                                         candidates */
    struct score_cache *score_cache; /* cached sums (score_cache.h); NULL: no cache */
    struct plugin_clock *clock;      /* times the plugins of this run; NULL: it is not measured */
    uint64_t *modified_blocks; /* or NULL; a bit for each block whose scores include this request's
                                  own */
};

static inline const struct pool_member *candidate_set_member(const struct candidate_set *candidates,
                                                             uint32_t i) {
    return &candidates->snapshot->members[candidates->columns->member[i]];
}

static inline bool candidate_set_is_reserved(const struct candidate_set *candidates, uint32_t i) {
    return candidates->reserved &&
           candidate_set_member(candidates, i)->endpoint == candidates->reserved;
}

/* Requests in flight without this one, which may have a slot already. */
static inline float candidate_set_other_requests(const struct candidate_set *candidates,
                                                 uint32_t i) {
    float n = candidates->columns->in_flight[i];
    return candidate_set_is_reserved(candidates, i) && n > 0 ? n - 1 : n;
}

/* Their tokens, likewise. */
static inline float candidate_set_other_tokens(const struct candidate_set *candidates, uint32_t i) {
    float n = candidates->columns->n_tokens[i] -
              (candidate_set_is_reserved(candidates, i) ? candidates->reserved_tokens : 0);
    return n > 0 ? n : 0;
}

/* The attribute of a candidate, by its index in the needs of the profile. Returns: false where it
 * has no value. */
static inline bool candidate_set_attribute(const struct candidate_set *candidates, uint32_t i,
                                           uint32_t attribute, double *out) {
    const struct pool_snapshot *snapshot = candidates->snapshot;
    size_t row = (size_t)candidates->columns->member[i] * snapshot->n_attributes;
    return attribute_cell_get(&snapshot->attributes[row + attribute], candidates->now_ns, out);
}

/* The index of a member: a linear search once candidates were removed, so for a few members only.
 * Returns: candidates->n when it is not a candidate. */
uint32_t candidate_set_index_of(const struct candidate_set *candidates, uint32_t member);

/* ---- removing candidates --------------------------------------------------------------------- */

/* Copies row `from` of one set of columns to row `to` of another, or of the same. */
void candidate_columns_copy(const struct candidate_columns *out, uint32_t to,
                            const struct candidate_columns *columns, uint32_t from);

/* For filters: keeps the candidates for which `keep` is true, in their order. */
void candidate_set_filter(struct candidate_set *candidates, const void *parameters,
                          bool (*keep)(const void *parameters,
                                       const struct candidate_set *candidates, uint32_t i));
/* The same, unless it is false for all: then all remain. Returns: whether it is true for any. */
bool candidate_set_prefer(struct candidate_set *candidates, const void *parameters,
                          bool (*keep)(const void *parameters,
                                       const struct candidate_set *candidates, uint32_t i));
/* For filters: keeps only candidate `i`. */
void candidate_set_select(struct candidate_set *candidates, uint32_t i);
/* Removes candidate `i` after scoring; the order of the others changes. */
void candidate_set_remove(struct candidate_set *candidates, uint32_t i);

/* ---- scoring --------------------------------------------------------------------------------- */

/* For one or a few candidates. */
static inline void candidate_set_add_score(struct candidate_set *candidates, uint32_t i,
                                           float number) {
    candidates->score[i] += number;
    if (candidates->modified_blocks) {
        candidates->modified_blocks[i / CANDIDATE_BLOCK / 64] |= UINT64_C(1)
                                                                 << i / CANDIDATE_BLOCK % 64;
    }
}

/* Any score may have changed. */
void candidate_set_mark_modified_blocks(struct candidate_set *candidates); /* with
                                                                              modified_blocks */
static inline void candidate_set_mark_all_modified(struct candidate_set *candidates) {
    if (candidates->modified_blocks) {
        candidate_set_mark_modified_blocks(candidates);
    }
}

/* Adds `weight` to the scores of candidates for which `matches` is true. */
void candidate_set_score_matching(
    struct candidate_set *candidates, const void *parameters, float weight,
    bool (*matches)(const void *parameters, const struct candidate_set *candidates, uint32_t i));

/* The same in two steps: range stats of a column, of which only minimum and maximum are set, and
 * then the scores of a range, added to `out`. The range is not empty, and its values are not
 * negative. */
void range_stats_of_column(const float *values, struct candidate_range range,
                           struct range_stats *out);
void score_range_lower_is_better(const float *values, const struct range_stats *stats, float weight,
                                 struct candidate_range range, float *out);
/* Adds `weight` to each of a range. */
void score_range_constant(float weight, struct candidate_range range, float *out);
/* 0 scores 1, the maximum 0. All score 1 where all are 0. */
void score_range_below_max(const float *values, const struct range_stats *stats, float weight,
                           struct candidate_range range, float *out);

/* ---- reductions ------------------------------------------------------------------------------ */

/* The sum of the column in_flight; computed when it is first needed. */
float candidate_set_in_flight(struct candidate_set *candidates);
/* -INFINITY without candidates. */
float candidate_set_max(const struct candidate_set *candidates, const float *values);

/* The maximum of a column. */
struct column_max {
    float value;
    uint32_t n;                   /* number of candidates that have it; 0: all are NaN */
    struct candidate_range range; /* contains all of them */
};

struct column_max column_max_find(const struct candidate_set *candidates, const float *values);
/* The index of the `nth` candidate that has the maximum; 0 where there are fewer. */
uint32_t column_max_index(const struct column_max *best, const float *values, uint32_t nth);

#endif
