/* Loops over the columns of a choice. Those that make one number of a column (a sum, the greatest)
 * may do so in any order: the pragmas say it, since a compiler must not assume it of floats. */
#include "pool/choice.h"
#include "pool/vectors.h"

#include <math.h>
#include <string.h>

enum { STRETCH = 32 }; /* of candidates that are looked at one by one */

/* ---- loops ----------------------------------------------------------------------------------- */

/* Of two a loop takes the one behind where one is NaN. */

VECTORS static struct choice_span span_of(const float *values, uint32_t n) {
    float least = INFINITY, greatest = -INFINITY;
#pragma omp simd reduction(min : least) reduction(max : greatest)
    for (uint32_t i = 0; i < n; i++) {
        least = least < values[i] ? least : values[i];
        greatest = greatest > values[i] ? greatest : values[i];
    }
    return (struct choice_span){.least = least, .greatest = greatest};
}

VECTORS static float greatest_of(const float *values, uint32_t n) {
    float greatest = -INFINITY;
#pragma omp simd reduction(max : greatest)
    for (uint32_t i = 0; i < n; i++) {
        greatest = greatest > values[i] ? greatest : values[i];
    }
    return greatest;
}

VECTORS static float mean_of_known(const float *values, const uint32_t *said, uint32_t n,
                                   uint32_t known) {
    float sum = 0, n_known = 0;
#pragma omp simd reduction(+ : sum, n_known)
    for (uint32_t i = 0; i < n; i++) {
        sum += values[i];
        n_known += (said[i] & known) == known ? 1 : 0;
    }
    return n_known > 0 ? sum / n_known : 0;
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

VECTORS static void add_shares(float *score, const float *values, uint32_t n, float weight) {
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        score[i] += values[i] * weight;
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
#include "pool/choice_columns.def"
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
#include "pool/choice_columns.def"
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
    show(choice, last);
}

/* ---- for scorers ----------------------------------------------------------------------------- */

void choice_add_least(struct choice *choice, const float *values, float weight) {
    struct choice_span span = choice_span_of(choice, values);
    if (span.greatest > span.least) {
        add_less(choice->score, values, choice->n, span.greatest,
                 weight / (span.greatest - span.least));
    } else {
        add_to_all(choice->score, choice->n, weight);
    }
}

void choice_add_less_of_most(struct choice *choice, const float *values, float weight) {
    float most = choice_greatest(choice, values);
    if (most > 0) {
        add_less(choice->score, values, choice->n, most, weight / most);
    } else {
        add_to_all(choice->score, choice->n, weight);
    }
}

void choice_add_shares(struct choice *choice, const float *values, float weight) {
    add_shares(choice->score, values, choice->n, weight);
}

void choice_add_matching(struct choice *choice, const void *parameters, float weight,
                         bool (*matches)(const void *parameters, const struct choice *choice,
                                         uint32_t i)) {
    for (uint32_t i = 0; i < choice->n; i++) {
        choice->score[i] += matches(parameters, choice, i) ? weight : 0;
    }
}

/* ---- numbers about a column ------------------------------------------------------------------ */

struct choice_span choice_span_of(const struct choice *choice, const float *values) {
    return span_of(values, choice->n);
}

float choice_greatest(const struct choice *choice, const float *values) {
    return greatest_of(values, choice->n);
}

float choice_mean_of_known(const struct choice *choice, const float *values, uint32_t known) {
    return mean_of_known(values, choice->columns->known, choice->n, known);
}

uint32_t choice_count(const struct choice *choice, const float *values, float value) {
    return count(values, choice->n, value);
}

uint32_t choice_find(const struct choice *choice, const float *values, float value, uint32_t nth) {
    uint32_t i = 0;
    for (; i + STRETCH <= choice->n; i += STRETCH) {
        uint32_t found = count(values + i, STRETCH, value);
        if (found > nth) {
            break;
        }
        nth -= found;
    }
    for (; i < choice->n; i++) {
        if (values[i] == value && nth-- == 0) {
            return i;
        }
    }
    return 0;
}
