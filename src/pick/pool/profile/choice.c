/* Loops over the columns of a choice. Those that make one number of a column (a sum, the greatest)
 * may do so in any order: the pragmas say it, since a compiler must not assume it of floats. */
#include "pick/pool/profile/choice.h"
#include "pick/pool/profile/vectors.h"

#include <math.h>
#include <string.h>

/* ---- loops ----------------------------------------------------------------------------------- */

/* Of two a loop takes the one behind where one is NaN. */

/* Floats that aren't below 0 are in the order of their bits as whole numbers, and of these gcc
 * finds the least and the greatest in half the time, most of which is in what follows the last
 * vector. */
VECTORS static void span_of(const float *values, uint32_t n, float *out_least,
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

VECTORS static float greatest_of(const float *values, uint32_t n) {
    float greatest = -INFINITY;
#pragma omp simd reduction(max : greatest)
    for (uint32_t i = 0; i < n; i++) {
        greatest = greatest > values[i] ? greatest : values[i];
    }
    return greatest;
}

static void note_best(struct choice_best *best, float greatest, uint32_t from, uint32_t to) {
    if (greatest > best->value) {
        best->value = greatest;
        best->range.from = from;
    }
    best->range.to = greatest >= best->value ? to : best->range.to;
}

/* The greatest, and a range that begins and ends with blocks that have it. */
VECTORS static struct choice_best best_of(const float *values, uint32_t n) {
    struct choice_best best = {.value = -INFINITY};
    uint32_t n_whole = n - n % CHOICE_BLOCK;
    float greatest = -INFINITY;
    for (size_t from = 0; from < n_whole; from += CHOICE_BLOCK) {
        float of_block = -INFINITY;
#pragma omp simd reduction(max : of_block)
        for (size_t i = 0; i < CHOICE_BLOCK; i++) {
            of_block = of_block > values[from + i] ? of_block : values[from + i];
        }
        note_best(&best, of_block, (uint32_t)from, (uint32_t)from + CHOICE_BLOCK);
    }
#pragma omp simd reduction(max : greatest)
    for (size_t i = n_whole; i < n; i++) {
        greatest = greatest > values[i] ? greatest : values[i];
    }
    note_best(&best, greatest, n_whole, n);
    return best;
}

VECTORS static uint32_t count(const float *values, uint32_t n, float value) {
    uint32_t found = 0;
#pragma omp simd reduction(+ : found)
    for (uint32_t i = 0; i < n; i++) {
        found += values[i] == value;
    }
    return found;
}

VECTORS static void add_to_all(float *score, uint32_t n, float weight) {
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        score[i] += weight;
    }
}

/* Less is better, and `worst` is worth nothing. */
VECTORS static void add_less(float *score, const float *values, uint32_t n, float worst,
                             float factor) {
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        score[i] += (worst - values[i]) * factor;
    }
}

/* ---- who is a candidate ---------------------------------------------------------------------- */

uint32_t choice_place_of(const struct choice *choice, uint32_t member) {
    const uint32_t *members = choice->columns->member;
    uint32_t i = 0;
    if (choice->place_of) {
        i = choice->place_of[member];
        return i < choice->n ? i : choice->n;
    }
    while (i < choice->n && members[i] != member) {
        i++;
    }
    return i;
}

void choice_columns_copy(const struct choice_columns *out, uint32_t to,
                         const struct choice_columns *columns, uint32_t from) {
#define COLUMN(type, name) out->name[to] = columns->name[from];
#include "pick/pool/profile/choice_columns.def"
#undef COLUMN
}

/* The columns of the first `n` are in the room. */
static void move_first(const struct choice *choice, uint32_t n) {
    const struct choice_columns *room = choice->room, *columns = choice->columns;
    size_t n_bytes = (size_t)n * sizeof(uint32_t);
    if (columns == room) {
        return;
    }
#define COLUMN(type, name) memcpy(room->name, columns->name, n_bytes);
#include "pick/pool/profile/choice_columns.def"
#undef COLUMN
}

/* The candidates are now the first `n` of the room. */
static void show(struct choice *choice, uint32_t n) {
    choice->columns = choice->room;
    choice->place_of = NULL;
    choice->n = n;
}

void choice_keep(struct choice *choice, const void *parameters,
                 bool (*keep)(const void *parameters, const struct choice *choice, uint32_t i)) {
    uint32_t n = 0;
    while (n < choice->n && keep(parameters, choice, n)) {
        n++;
    }
    if (n == choice->n) {
        return;
    }
    move_first(choice, n);
    for (uint32_t i = n + 1; i < choice->n; i++) {
        if (keep(parameters, choice, i)) {
            choice_columns_copy(choice->room, n++, choice->columns, i);
        }
    }
    show(choice, n);
}

void choice_keep_one(struct choice *choice, uint32_t i) {
    choice_columns_copy(choice->room, 0, choice->columns, i);
    show(choice, 1);
}

void choice_drop(struct choice *choice, uint32_t i) {
    uint32_t last = choice->n - 1;
    move_first(choice, last);
    choice_columns_copy(choice->room, i, choice->columns, last);
    choice->score[i] = choice->score[last];
    choice_touch_all(choice);
    show(choice, last);
}

/* ---- for scorers ----------------------------------------------------------------------------- */

void choice_touch_blocks(struct choice *choice) {
    uint32_t n_blocks = (choice->n + CHOICE_BLOCK - 1) / CHOICE_BLOCK;
    for (uint32_t i = 0; i < n_blocks; i++) {
        choice->touched[i / 64] |= UINT64_C(1) << i % 64;
    }
}

void choice_gauge(const float *values, struct choice_range range, struct choice_facts *out) {
    span_of(values + range.from, range.to - range.from, &out->least, &out->greatest);
}

void choice_rate_all(float weight, struct choice_range range, float *out) {
    add_to_all(out + range.from, range.to - range.from, weight);
}

void choice_rate_least(const float *values, const struct choice_facts *facts, float weight,
                       struct choice_range range, float *out) {
    uint32_t n = range.to - range.from;
    if (facts->greatest > facts->least) {
        add_less(out + range.from, values + range.from, n, facts->greatest,
                 weight / (facts->greatest - facts->least));
    } else {
        choice_rate_all(weight, range, out);
    }
}

void choice_rate_less_of_most(const float *values, const struct choice_facts *facts, float weight,
                              struct choice_range range, float *out) {
    struct choice_facts from_none = {.least = 0, .greatest = facts->greatest};
    choice_rate_least(values, &from_none, weight, range, out);
}

void choice_add_least(struct choice *choice, const float *values, float weight) {
    struct choice_range all = {0, choice->n};
    struct choice_facts facts;
    choice_gauge(values, all, &facts);
    choice_rate_least(values, &facts, weight, all, choice->score);
    choice_touch_all(choice);
}

void choice_add_matching(struct choice *choice, const void *parameters, float weight,
                         bool (*matches)(const void *parameters, const struct choice *choice,
                                         uint32_t i)) {
    for (uint32_t i = 0; i < choice->n; i++) {
        if (matches(parameters, choice, i)) {
            choice_add_to(choice, i, weight);
        }
    }
}

/* ---- numbers about a column ------------------------------------------------------------------ */

float choice_greatest(const struct choice *choice, const float *values) {
    return greatest_of(values, choice->n);
}

struct choice_best choice_best_of(const struct choice *choice, const float *values) {
    struct choice_best best = best_of(values, choice->n);
    best.n = count(values + best.range.from, best.range.to - best.range.from, best.value);
    return best;
}

/* Passes over whole blocks while the one that is looked for is behind them. Returns: where it has
 * to be looked for. */
static uint32_t pass_over(const struct choice_best *best, const float *values, uint32_t from,
                          uint32_t n_block, uint32_t *nth) {
    while (from + n_block < best->range.to) {
        uint32_t found = count(values + from, n_block, best->value);
        if (found > *nth) {
            break;
        }
        *nth -= found;
        from += n_block;
    }
    return from;
}

uint32_t choice_best_place(const struct choice_best *best, const float *values, uint32_t nth) {
    uint32_t i = pass_over(best, values, best->range.from, CHOICE_BLOCK, &nth);
    i = pass_over(best, values, i, CHOICE_BLOCK / 4, &nth);
    for (; i < best->range.to; i++) {
        if (values[i] == best->value && nth-- == 0) {
            return i;
        }
    }
    return 0;
}
