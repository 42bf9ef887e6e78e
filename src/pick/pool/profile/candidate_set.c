/* Loops over the columns of candidates. Reductions (sum, maximum) may be reordered: the pragmas
 * allow it, which a compiler must not assume for floats. */
#include "pick/pool/profile/candidate_set.h"

#include <math.h>
#include <string.h>

/* ---- loops ----------------------------------------------------------------------------------- */

/* Floats that are not negative sort as their bits do as integers. On integers gcc finds minimum and
 * maximum in half the time, mostly saved after the last whole vector. */
SIMD_TARGETS static void find_min_max(const float *values, uint32_t n, float *out_least,
                                      float *out_greatest) {
    int32_t least = INT32_MAX, greatest = INT32_MIN;
    for (uint32_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        least = least < bits ? least : bits;
        greatest = greatest > bits ? greatest : bits;
    }
    memcpy(out_least, &least, sizeof(least));
    memcpy(out_greatest, &greatest, sizeof(greatest));
}

SIMD_TARGETS static float find_max(const float *values, uint32_t n) {
    float greatest = -INFINITY;
#pragma omp simd reduction(max : greatest)
    for (uint32_t i = 0; i < n; i++) {
        greatest = greatest > values[i] ? greatest : values[i];
    }
    return greatest;
}

static void update_column_max(struct column_max *best, float greatest, uint32_t from, uint32_t to) {
    if (greatest > best->value) {
        best->value = greatest;
        best->range.from = from;
    }
    best->range.to = greatest >= best->value ? to : best->range.to;
}

SIMD_TARGETS static float find_sum(const float *values, uint32_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (uint32_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum;
}

/* The maximum, and a range of blocks that contains all positions of it. */
SIMD_TARGETS static struct column_max find_column_max(const float *values, uint32_t n) {
    struct column_max best = {.value = -INFINITY};
    uint32_t n_whole = n - n % CANDIDATE_BLOCK;
    float greatest = -INFINITY;
    for (size_t from = 0; from < n_whole; from += CANDIDATE_BLOCK) {
        float of_block = -INFINITY;
#pragma omp simd reduction(max : of_block)
        for (size_t i = 0; i < CANDIDATE_BLOCK; i++) {
            of_block = of_block > values[from + i] ? of_block : values[from + i];
        }
        update_column_max(&best, of_block, (uint32_t)from, (uint32_t)from + CANDIDATE_BLOCK);
    }
#pragma omp simd reduction(max : greatest)
    for (size_t i = n_whole; i < n; i++) {
        greatest = greatest > values[i] ? greatest : values[i];
    }
    update_column_max(&best, greatest, n_whole, n);
    return best;
}

SIMD_TARGETS static uint32_t count_equal(const float *values, uint32_t n, float value) {
    uint32_t found = 0;
#pragma omp simd reduction(+ : found)
    for (uint32_t i = 0; i < n; i++) {
        found += values[i] == value;
    }
    return found;
}

SIMD_TARGETS static void add_constant(float *score, uint32_t n, float weight) {
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        score[i] += weight;
    }
}

/* Lower is better; `worst` scores 0. */
SIMD_TARGETS static void add_lower_is_better(float *score, const float *values, uint32_t n,
                                             float worst, float factor) {
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        score[i] += (worst - values[i]) * factor;
    }
}

/* ---- removing candidates --------------------------------------------------------------------- */

uint32_t candidate_set_index_of(const struct candidate_set *candidates, uint32_t member) {
    const uint32_t *members = candidates->columns->member;
    uint32_t i = 0;
    if (candidates->index_of) {
        i = candidates->index_of[member];
        return i < candidates->n ? i : candidates->n;
    }
    while (i < candidates->n && members[i] != member) {
        i++;
    }
    return i;
}

void candidate_columns_copy(const struct candidate_columns *out, uint32_t to,
                            const struct candidate_columns *columns, uint32_t from) {
#define COLUMN(type, name) out->name[to] = columns->name[from];
#include "pick/pool/profile/candidate_columns.def"
#undef COLUMN
}

/* Copies the columns of the first `n` into filtered_columns. */
static void copy_first_columns(const struct candidate_set *candidates, uint32_t n) {
    const struct candidate_columns *filtered_columns = candidates->filtered_columns,
                                   *columns = candidates->columns;
    size_t n_bytes = (size_t)n * sizeof(uint32_t);
    if (columns == filtered_columns) {
        return;
    }
#define COLUMN(type, name) memcpy(filtered_columns->name, columns->name, n_bytes);
#include "pick/pool/profile/candidate_columns.def"
#undef COLUMN
}

/* The candidates are now the first `n` of filtered_columns. */
static void use_filtered_columns(struct candidate_set *candidates, uint32_t n) {
    candidates->columns = candidates->filtered_columns;
    candidates->index_of = NULL;
    candidates->is_summed = false;
    candidates->affinity_limit = 0;
    candidates->n = n;
}

void candidate_set_filter(struct candidate_set *candidates, const void *parameters,
                          bool (*keep)(const void *parameters,
                                       const struct candidate_set *candidates, uint32_t i)) {
    uint32_t n = 0;
    while (n < candidates->n && keep(parameters, candidates, n)) {
        n++;
    }
    if (n == candidates->n) {
        return;
    }
    copy_first_columns(candidates, n);
    for (uint32_t i = n + 1; i < candidates->n; i++) {
        if (keep(parameters, candidates, i)) {
            candidate_columns_copy(candidates->filtered_columns, n++, candidates->columns, i);
        }
    }
    use_filtered_columns(candidates, n);
}

bool candidate_set_prefer(struct candidate_set *candidates, const void *parameters,
                          bool (*keep)(const void *parameters,
                                       const struct candidate_set *candidates, uint32_t i)) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (keep(parameters, candidates, i)) {
            candidate_set_filter(candidates, parameters, keep);
            return true;
        }
    }
    return false;
}

void candidate_set_select(struct candidate_set *candidates, uint32_t i) {
    candidate_columns_copy(candidates->filtered_columns, 0, candidates->columns, i);
    use_filtered_columns(candidates, 1);
}

void candidate_set_remove(struct candidate_set *candidates, uint32_t i) {
    uint32_t last = candidates->n - 1;
    copy_first_columns(candidates, last);
    candidate_columns_copy(candidates->filtered_columns, i, candidates->columns, last);
    candidates->score[i] = candidates->score[last];
    candidate_set_mark_all_modified(candidates);
    use_filtered_columns(candidates, last);
}

/* ---- scoring --------------------------------------------------------------------------------- */

void candidate_set_mark_modified_blocks(struct candidate_set *candidates) {
    uint32_t n_blocks = (candidates->n + CANDIDATE_BLOCK - 1) / CANDIDATE_BLOCK;
    for (uint32_t i = 0; i < n_blocks; i++) {
        candidates->modified_blocks[i / 64] |= UINT64_C(1) << i % 64;
    }
}

void range_stats_of_column(const float *values, struct candidate_range range,
                           struct range_stats *out) {
    find_min_max(values + range.from, range.to - range.from, &out->min, &out->max);
}

void score_range_constant(float weight, struct candidate_range range, float *out) {
    add_constant(out + range.from, range.to - range.from, weight);
}

void score_range_lower_is_better(const float *values, const struct range_stats *stats, float weight,
                                 struct candidate_range range, float *out) {
    uint32_t n = range.to - range.from;
    if (stats->max > stats->min) {
        add_lower_is_better(out + range.from, values + range.from, n, stats->max,
                            weight / (stats->max - stats->min));
    } else {
        score_range_constant(weight, range, out);
    }
}

void score_range_below_max(const float *values, const struct range_stats *stats, float weight,
                           struct candidate_range range, float *out) {
    struct range_stats from_none = {.min = 0, .max = stats->max};
    score_range_lower_is_better(values, &from_none, weight, range, out);
}

void candidate_set_score_matching(
    struct candidate_set *candidates, const void *parameters, float weight,
    bool (*matches)(const void *parameters, const struct candidate_set *candidates, uint32_t i)) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (matches(parameters, candidates, i)) {
            candidate_set_add_score(candidates, i, weight);
        }
    }
}

/* ---- reductions ------------------------------------------------------------------------------ */

float candidate_set_in_flight(struct candidate_set *candidates) {
    if (!candidates->is_summed) {
        candidates->n_in_flight = find_sum(candidates->columns->in_flight, candidates->n);
        candidates->is_summed = true;
    }
    return candidates->n_in_flight;
}

float candidate_set_max(const struct candidate_set *candidates, const float *values) {
    return find_max(values, candidates->n);
}

struct column_max column_max_find(const struct candidate_set *candidates, const float *values) {
    struct column_max best = find_column_max(values, candidates->n);
    best.n = count_equal(values + best.range.from, best.range.to - best.range.from, best.value);
    return best;
}

/* Skips whole blocks before the `nth` maximum. Returns: where to search for it. */
static uint32_t skip_blocks(const struct column_max *best, const float *values, uint32_t from,
                            uint32_t n_block, uint32_t *nth) {
    while (from + n_block < best->range.to) {
        uint32_t found = count_equal(values + from, n_block, best->value);
        if (found > *nth) {
            break;
        }
        *nth -= found;
        from += n_block;
    }
    return from;
}

uint32_t column_max_index(const struct column_max *best, const float *values, uint32_t nth) {
    uint32_t i = skip_blocks(best, values, best->range.from, CANDIDATE_BLOCK, &nth);
    i = skip_blocks(best, values, i, CANDIDATE_BLOCK / 4, &nth);
    for (; i < best->range.to; i++) {
        if (values[i] == best->value && nth-- == 0) {
            return i;
        }
    }
    return 0;
}
