/* The candidates of a choice and what is known of each, in columns: what is known of candidate i is
 * at place i of each. A column is an array of numbers, so that going through a thousand endpoints
 * is a loop that the compiler turns into vector instructions.
 *
 * The columns are not the choice's own until candidates are taken away (they are those of
 * pick/pool/view.h), so whoever takes some away goes through choice_keep or choice_keep_one.
 *
 * Counts are floats: whole numbers, exact up to 16 million.
 *
 * Thread: one `struct choice` is of one thread. */
#ifndef SLUICE_PICK_POOL_PROFILE_CHOICE_H
#define SLUICE_PICK_POOL_PROFILE_CHOICE_H

#include "core/base/dice.h"
#include "pick/pool/prefix/prompt.h"
#include "pick/pool/snapshot.h"

struct choice_columns {
#define COLUMN(type, name) type *name;
#include "pick/pool/profile/choice_columns.def"
#undef COLUMN
};

/* The low bits of a time in 64ths of a second; never 0. */
static inline uint32_t choice_clock(uint64_t ns) {
    uint32_t clock = (uint32_t)(ns / (1000000000 / 64));
    return clock != 0 ? clock : 1;
}

/* Who was lately sent how the request's prompt begins (pick/pool/prefix/table.h). */
struct choice_prefix {
    uint32_t n_blocks; /* that the prompt has; 0: it isn't known, or shorter than a block */
    uint32_t n;
    struct {
        uint32_t member;
        uint32_t n_blocks; /* of the first, 1 at least */
    } hits[PREFIX_MOST_HOSTS];
};

/* Candidates that are looked at together: a block is 64 of them, or a few less at the end. */
enum { CHOICE_BLOCK = 64 };
struct choice_range {
    uint32_t from, to;
};

/* What a scorer makes of a range of candidates. Those of two ranges become those of both: the least
 * of the leasts, the greatest of the greatest, and sums. */
struct choice_facts {
    float least, greatest, sum;
    uint32_t n;
};

struct choice {
    const struct pool_snapshot *snapshot;
    struct str model;   /* as the endpoint will see it; ptr NULL: none is named */
    struct str session; /* whose requests belong together; ptr NULL: none is named */
    const struct choice_prefix *prefix;
    struct pool_headers headers; /* find NULL: they aren't known */
    struct dice *dice;           /* whose numbers decide what is left to chance */
    uint64_t now_ns;

    uint32_t n;        /* candidates */
    uint32_t adapters; /* LoRA: what any of them may have, in one number
                          (pick/pool/endpoint/load.h) */
    const struct choice_columns *columns;
    const uint32_t *place_of; /* of each member, as long as none was taken away; then NULL */
    float *score;   /* of each candidate, the sum so far; counts from the first scorer on */
    float *scratch; /* of each candidate: a plugin's own while it runs */
    const struct choice_columns *room; /* for the columns of those that are left */
    struct standing_sums *standing;    /* sums from before (standing_sums.h); NULL: none are kept */
    uint64_t *touched; /* a bit for each block: scores in it are this request's own; or NULL */
};

static inline const struct pool_member *choice_member(const struct choice *choice, uint32_t i) {
    return &choice->snapshot->members[choice->columns->member[i]];
}

/* Where a member is among the candidates: for a few of them, since all are gone through where some
 * were taken away. Returns: choice->n when it is none. */
uint32_t choice_place_of(const struct choice *choice, uint32_t member);

/* ---- who is a candidate ---------------------------------------------------------------------- */

/* What is at place `from` of one is put at place `to` of the other, or of the same. */
void choice_columns_copy(const struct choice_columns *out, uint32_t to,
                         const struct choice_columns *columns, uint32_t from);

/* For filters: keeps those of which `keep` is true, in their order. */
void choice_keep(struct choice *choice, const void *parameters,
                 bool (*keep)(const void *parameters, const struct choice *choice, uint32_t i));
/* For filters: keeps only candidate `i`. */
void choice_keep_one(struct choice *choice, uint32_t i);
/* Takes away candidate `i`, after scores were added; others change their places. */
void choice_drop(struct choice *choice, uint32_t i);

/* ---- for scorers ----------------------------------------------------------------------------- */

/* For one or a few. */
static inline void choice_add_to(struct choice *choice, uint32_t i, float number) {
    choice->score[i] += number;
    if (choice->touched) {
        choice->touched[i / CHOICE_BLOCK / 64] |= UINT64_C(1) << i / CHOICE_BLOCK % 64;
    }
}

/* All scores may become others. */
void choice_touch_blocks(struct choice *choice); /* with `touched` */
static inline void choice_touch_all(struct choice *choice) {
    if (choice->touched) {
        choice_touch_blocks(choice);
    }
}

/* Each adds to each candidate's score what it says, times `weight`. `values` are of the candidates;
 * none is NaN. */

/* Less is better: the least of the values, which aren't below 0, becomes 1, the greatest 0, and
 * those between lie in between. All are 1 where all are the same. */
void choice_add_least(struct choice *choice, const float *values, float weight);
/* 1 for those of which `matches` is true. */
void choice_add_matching(struct choice *choice, const void *parameters, float weight,
                         bool (*matches)(const void *parameters, const struct choice *choice,
                                         uint32_t i));

/* The same in two steps, of which the second adds to `out`: what is to be known of all of a range,
 * and what that makes of some of them. Only the least and the greatest are looked for. The range is
 * not empty, and its values aren't below 0. */
void choice_gauge(const float *values, struct choice_range range, struct choice_facts *out);
void choice_rate_least(const float *values, const struct choice_facts *facts, float weight,
                       struct choice_range range, float *out);
/* Adds as much to all of a range. */
void choice_rate_all(float weight, struct choice_range range, float *out);
/* 0 becomes 1, the greatest of the values 0. All are 1 where all are 0. */
void choice_rate_less_of_most(const float *values, const struct choice_facts *facts, float weight,
                              struct choice_range range, float *out);

/* ---- numbers about a column ------------------------------------------------------------------ */

/* -INFINITY where there are no candidates. */
float choice_greatest(const struct choice *choice, const float *values);

/* The greatest of all. */
struct choice_best {
    float value;
    uint32_t n;                /* how many are this one; 0: none is a number */
    struct choice_range range; /* all of them are in it */
};

struct choice_best choice_best_of(const struct choice *choice, const float *values);
/* The place of one of them, `nth` others of which stand before it; 0 where there are not so
 * many. */
uint32_t choice_best_place(const struct choice_best *best, const float *values, uint32_t nth);

#endif
