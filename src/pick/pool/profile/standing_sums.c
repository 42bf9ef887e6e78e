/* Keeping sums, block by block. */
#include "pick/pool/profile/standing_sums.h"

#include <stdlib.h>
#include <string.h>

static uint32_t n_blocks(const struct standing_sums *standing) {
    return (standing->n + CHOICE_BLOCK - 1) / CHOICE_BLOCK;
}

static size_t n_words(const struct standing_sums *standing) {
    return (n_blocks(standing) + 63) / 64;
}

static struct choice_range range_of(const struct standing_sums *standing, uint32_t block) {
    uint32_t from = block * CHOICE_BLOCK, left = standing->n - from;
    return (struct choice_range){from, from + (left < CHOICE_BLOCK ? left : CHOICE_BLOCK)};
}

/* The facts of all; behind them are those of each block. */
static struct choice_facts *facts_of(const struct standing_sums *standing, size_t scorer) {
    return &standing->facts[scorer * (1 + n_blocks(standing))];
}

void standing_sums_fini(struct standing_sums *standing) {
    free(standing->memory);
    *standing = (struct standing_sums){.profile = NULL};
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void mark_all(const struct standing_sums *standing, uint64_t *bits) {
    for (uint32_t i = 0; i < n_blocks(standing); i++) {
        bits[i / 64] |= UINT64_C(1) << i % 64;
    }
}

static bool is_steady(const struct profile_step *step) {
    return step->plugin->standing && !step->plugin->standing->of_counts;
}

/* As many words of eight bytes as everything takes: bits, facts, sums. */
static bool begin(struct standing_sums *standing, const struct profile *profile,
                  const struct choice *choice) {
    standing_sums_fini(standing);
    struct standing_sums own = {
        .profile = profile, .profile_of = choice->snapshot->generation, .n = choice->n};
    size_t n_bits = n_words(&own), n_sums = (size_t)n_blocks(&own) * CHOICE_BLOCK;
    size_t n_facts = profile->n_scorers * (1 + n_blocks(&own));
    own.memory = calloc(1, 2 * n_bits * sizeof(*own.changed) + 2 * n_sums * sizeof(*own.sums) +
                               n_facts * sizeof(*own.facts));
    if (!own.memory) {
        return false;
    }
    own.changed = own.memory;
    own.touched = own.changed + n_bits;
    own.facts = (struct choice_facts *)(void *)(own.touched + n_bits);
    own.sums = (float *)(void *)(own.facts + n_facts);
    own.score = own.sums + n_sums;
    mark_all(&own, own.changed);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct plugin_standing *plugin = profile->scorers[i].plugin->standing;
        own.any_steady = own.any_steady || is_steady(&profile->scorers[i]);
        own.ages = own.ages || (plugin && plugin->ages);
        own.of_models = own.of_models || (plugin && plugin->of_models);
    }
    *standing = own;
    return true;
}

/* What does not come from the endpoints. Returns: whether it is another, and matters. */
static bool note_request(struct standing_sums *standing, const struct choice *choice) {
    uint32_t clock = choice_clock(choice->now_ns);
    bool named = choice->model.ptr != NULL;
    bool other = (standing->ages && clock != standing->clock) ||
                 (standing->of_models && named != standing->named);
    standing->clock = clock;
    standing->named = named;
    return other;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static bool are_same(const struct choice_facts *one, const struct choice_facts *other) {
    return one->least <= other->least && one->least >= other->least &&
           one->greatest <= other->greatest && one->greatest >= other->greatest &&
           one->sum <= other->sum && one->sum >= other->sum && one->n == other->n;
}

static struct choice_facts join(const struct choice_facts *of_blocks, uint32_t n) {
    struct choice_facts all = PLUGIN_NO_FACTS;
    for (uint32_t i = 0; i < n; i++) {
        plugin_join_facts(&all, &of_blocks[i]);
    }
    return all;
}

/* Returns: whether they are others. */
static bool gauge_block(const struct standing_sums *standing, const struct choice *choice,
                        const struct profile_step *step, struct choice_facts *facts,
                        uint32_t block) {
    struct choice_facts now = {0};
    step->plugin->standing->gauge(step->parameters, choice, range_of(standing, block), &now);
    bool same = are_same(facts, &now);
    *facts = now;
    return !same;
}

/* Returns: whether the facts about all have changed. */
static bool gauge(const struct standing_sums *standing, const struct choice *choice,
                  size_t scorer) {
    const struct profile_step *step = &standing->profile->scorers[scorer];
    const struct plugin_standing *plugin = step->plugin->standing;
    struct choice_facts *facts = facts_of(standing, scorer);
    bool others = false;
    for (size_t i = 0; plugin && plugin->gauge && i < n_words(standing); i++) {
        for (uint64_t left = standing->changed[i]; left != 0; left &= left - 1) {
            uint32_t block = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(left);
            others = gauge_block(standing, choice, step, facts + 1 + block, block) || others;
        }
    }
    if (!others) {
        return false;
    }
    struct choice_facts all = join(facts + 1, n_blocks(standing));
    if (plugin->settle) {
        plugin->settle(&all);
    }
    bool same = are_same(facts, &all);
    *facts = all;
    return !same;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void rate(const struct standing_sums *standing, const struct choice *choice,
                 uint32_t block) {
    const struct profile *profile = standing->profile;
    struct choice_range range = range_of(standing, block);
    memset(&standing->sums[range.from], 0, CHOICE_BLOCK * sizeof(*standing->sums));
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct profile_step *step = &profile->scorers[i];
        if (step->plugin->standing) {
            step->plugin->standing->rate(step->parameters, choice, facts_of(standing, i),
                                         step->weight, range, standing->sums);
        }
    }
}

/* Makes the sums what they should be, and the scores the sums. */
static void update(const struct standing_sums *standing, const struct choice *choice, bool all) {
    for (size_t i = 0; i < standing->profile->n_scorers; i++) {
        all = gauge(standing, choice, i) || all;
    }
    if (all) {
        mark_all(standing, standing->changed);
    }
    for (size_t i = 0; i < n_words(standing); i++) {
        uint64_t left = standing->changed[i] | standing->touched[i];
        for (; left != 0; left &= left - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(left), block = (uint32_t)(i * 64) + bit;
            if (standing->changed[i] >> bit & 1) {
                rate(standing, choice, block);
            }
            size_t from = (size_t)block * CHOICE_BLOCK;
            memcpy(&standing->score[from], &standing->sums[from],
                   CHOICE_BLOCK * sizeof(*standing->sums));
        }
        standing->changed[i] = standing->touched[i] = 0;
    }
}

/* ---- of few ---------------------------------------------------------------------------------- */

/* What steady scorers say, to which the others add. */
static void score_few(struct standing_sums *standing, struct choice *choice) {
    const struct profile *profile = standing->profile;
    size_t n_bytes = choice->n * sizeof(*standing->sums);
    bool stands = !note_request(standing, choice) && standing->steady;
    choice->score = standing->sums;
    if (!stands) {
        memset(standing->sums, 0, n_bytes);
    }
    for (size_t i = 0; !stands && i < profile->n_scorers; i++) {
        const struct profile_step *step = &profile->scorers[i];
        if (is_steady(step)) {
            plugin_score_standing(step->plugin->standing, step->parameters, choice, step->weight);
        }
    }
    standing->steady = true;
    standing->n_stood += stands;
    choice->score = standing->score;
    memcpy(standing->score, standing->sums, n_bytes);
}

/* ---- scores ---------------------------------------------------------------------------------- */

bool standing_sums_score(struct standing_sums *standing, const struct profile *profile,
                         struct choice *choice) {
    bool other = standing->profile != profile || standing->n != choice->n ||
                 standing->profile_of != choice->snapshot->generation;
    if (other && !begin(standing, profile, choice)) {
        return false;
    }
    bool few = choice->n < STANDING_LEAST;
    if (few && !standing->any_steady) {
        return false;
    }
    if (few) {
        score_few(standing, choice);
    } else {
        update(standing, choice, note_request(standing, choice));
        choice->score = standing->score;
        choice->touched = standing->touched;
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct profile_step *step = &profile->scorers[i];
        const struct plugin_standing *plugin = step->plugin->standing;
        if (!plugin || (few && plugin->of_counts)) {
            step->plugin->score(step->parameters, choice, step->weight);
        } else if (plugin->correct) {
            plugin->correct(step->parameters, choice, step->weight);
        }
    }
    return true;
}
