/* Sums of scores that are kept from one pick of a reader to the next. Most of what scorers say
 * comes from what is known of the endpoints, and between two picks that changes for two or three of
 * a thousand. So the sums of the scorers that have a `standing` (plugin.h) stand here, those of the
 * blocks (choice.h) where something has changed are made anew, and each request's own are added to
 * them and taken back before the next.
 *
 * Should facts about all candidates have changed, as the length of the longest queue, all sums are
 * made anew. But for rounding they are always what they were if nothing was kept.
 *
 * Of few candidates it is quicker to look at all than to look for blocks. Theirs are the sums of
 * the scorers that are steady, which means: not of counts (plugin.h), for all candidates or none.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PROFILE_STANDING_SUMS_H
#define SLUICE_PICK_POOL_PROFILE_STANDING_SUMS_H

#include "pick/pool/profile/profile.h"

/* Fewer candidates than this are few. */
enum { STANDING_LEAST = 3 * CHOICE_BLOCK };

/* Zeroed memory keeps nothing. */
struct standing_sums {
    const struct profile *profile; /* whose sums they are; NULL: nothing is kept */
    uint64_t profile_of;           /* the snapshot's generation: a profile lives as long as that */
    uint32_t n;                    /* candidates */
    bool ages, of_models;          /* some of its scorers' numbers (plugin.h) */
    uint32_t clock;                /* choice_clock then */
    bool named;                    /* the request named a model */
    bool steady;                   /* of few: nothing has changed since but counts */
    bool any_steady;               /* of its scorers */
    uint64_t n_stood;              /* of few: picks for which no sum was made anew */
    void *memory;                  /* of the following */
    float *sums, *score;           /* of each candidate: without and with the request's own */
    struct choice_facts *facts;    /* of each scorer: that hold now, then those of each block */
    uint64_t *changed, *touched;   /* a bit for each block */
};

void standing_sums_fini(struct standing_sums *standing);
/* Something is known of the candidate at this place that was not before; `steady`: it is a
 * count. */
static inline void standing_sums_note(struct standing_sums *standing, uint32_t place, bool steady) {
    standing->steady = standing->steady && steady;
    if (place < standing->n) {
        uint32_t block = place / CHOICE_BLOCK;
        standing->changed[block / 64] |= UINT64_C(1) << block % 64;
    }
}

/* Scores the candidates, of which none was taken away: choice->score are its own from now on.
 * Returns: false when there is no memory for it, or nothing to be kept, and nothing has
 * happened. */
bool standing_sums_score(struct standing_sums *standing, const struct profile *profile,
                         struct choice *choice) __attribute__((warn_unused_result));

#endif
