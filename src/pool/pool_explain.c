/* A profile run one step at a time, with what each step did written down. */
#include "pool/pool_explain.h"

#include <stdlib.h>

#include "pool/pool_state.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the explanation");
}

static int compare(const void *a, const void *b) {
    uint32_t left = ((const struct pool_judgement *)a)->seen.member;
    uint32_t right = ((const struct pool_judgement *)b)->seen.member;
    return left < right ? -1 : left > right;
}

static struct pool_judgement *judgement_of(const struct pool_explanation *self, uint32_t member) {
    struct pool_judgement key = {.seen = {.member = member}};
    return bsearch(&key, self->items, self->n, sizeof(key), compare);
}

static enum status note_all(struct pool_explanation *self, const struct choice *choice,
                            struct arena *arena, struct error *err) {
    self->items = arena_calloc(arena, choice->n, sizeof(*self->items));
    if (!self->items) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < choice->n; i++) {
        struct pool_judgement *item = &self->items[self->n++];
        item->seen = choice->candidates[i];
        item->scores = arena_calloc(arena, self->profile->n_scorers, sizeof(*item->scores));
        if (!item->scores) {
            return no_memory(err);
        }
    }
    qsort(self->items, self->n, sizeof(*self->items), compare);
    return ST_OK;
}

/* Whom the filter has taken away: those that nobody had, and that are no candidates now. */
static void run_filter(struct pool_explanation *self, const struct profile_step *step,
                       struct choice *choice) {
    for (uint32_t i = 0; i < choice->n; i++) {
        judgement_of(self, choice->candidates[i].member)->taker = step;
    }
    profile_filter(step, choice);
    for (uint32_t i = 0; i < choice->n; i++) {
        judgement_of(self, choice->candidates[i].member)->taker = NULL;
    }
}

/* By itself, without its weight. */
static void run_scorer(struct pool_explanation *self, size_t scorer, struct choice *choice) {
    struct profile_step step = self->profile->scorers[scorer];
    step.weight = 1;
    profile_clear(choice);
    profile_score(&step, choice);
    for (uint32_t i = 0; i < choice->n; i++) {
        const struct candidate *candidate = &choice->candidates[i];
        judgement_of(self, candidate->member)->scores[scorer] = candidate->score;
    }
}

static void run(struct pool_explanation *self, struct choice *choice) {
    const struct profile *profile = self->profile;
    for (size_t i = 0; i < profile->n_filters; i++) {
        run_filter(self, &profile->filters[i], choice);
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        run_scorer(self, i, choice);
    }
    profile_clear(choice);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        profile_score(&profile->scorers[i], choice);
    }
    for (uint32_t i = 0; i < choice->n; i++) {
        const struct candidate *candidate = &choice->candidates[i];
        judgement_of(self, candidate->member)->seen.score = candidate->score;
    }
}

enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out, struct error *err) {
    struct choice choice;
    pool_look(reader);
    *out = (struct pool_explanation){.profile = pool_profile(reader)};
    if (!out->profile) {
        return ST_OK;
    }
    enum status st = pool_gather(reader, request, request->model, &choice, err);
    if (st == ST_OK) {
        st = note_all(out, &choice, arena, err);
    }
    if (st == ST_OK) {
        run(out, &choice);
    }
    return st;
}
