/* A profile run one step at a time, with what each step did written down. */
#include "pick/pool/explain.h"

#include <stdlib.h>

#include "pick/pool/state.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the explanation");
}

static int compare(const void *a, const void *b) {
    uint32_t left = ((const struct pool_judgement *)a)->member;
    uint32_t right = ((const struct pool_judgement *)b)->member;
    return left < right ? -1 : left > right;
}

static struct pool_judgement *judgement_of(const struct pool_explanation *self, uint32_t member) {
    struct pool_judgement key = {.member = member};
    return bsearch(&key, self->items, self->n, sizeof(key), compare);
}

static void see(const struct choice *choice, uint32_t i, struct pool_judgement *out) {
    const struct choice_columns *columns = choice->columns;
    *out = (struct pool_judgement){.member = columns->member[i],
                                   .known = columns->known[i],
                                   .in_flight = columns->in_flight[i],
                                   .n_waiting = columns->n_waiting[i],
                                   .n_running = columns->n_running[i],
                                   .kv_cache_used = columns->kv_cache_used[i]};
}

static enum status note_all(struct pool_explanation *self, const struct choice *choice,
                            struct arena *arena, struct error *err) {
    self->items = arena_calloc(arena, choice->n, sizeof(*self->items));
    if (!self->items) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < choice->n; i++) {
        struct pool_judgement *item = &self->items[self->n++];
        see(choice, i, item);
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
        judgement_of(self, choice->columns->member[i])->taker = step;
    }
    profile_filter(step, choice);
    for (uint32_t i = 0; i < choice->n; i++) {
        judgement_of(self, choice->columns->member[i])->taker = NULL;
    }
}

/* By itself, without its weight. */
static void run_scorer(struct pool_explanation *self, size_t scorer, struct choice *choice) {
    struct profile_step step = self->profile->scorers[scorer];
    step.weight = 1;
    profile_clear(choice);
    profile_score(&step, choice);
    for (uint32_t i = 0; i < choice->n; i++) {
        judgement_of(self, choice->columns->member[i])->scores[scorer] = choice->score[i];
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
        judgement_of(self, choice->columns->member[i])->score = choice->score[i];
    }
}

/* Of `choice`, which is left without those that the filters take away. */
static enum status explain(struct pool_reader *reader, const struct pool_request *request,
                           struct choice *choice, struct arena *arena, struct pool_explanation *out,
                           struct error *err) {
    pool_prompt_match(reader, out->profile, request, request->model);
    out->n = 0;
    enum status st = note_all(out, choice, arena, err);
    if (st == ST_OK) {
        run(out, choice);
    }
    return st;
}

/* As pool_choose_by_profile. */
enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out, struct error *err) {
    struct choice choice;
    *out = (struct pool_explanation){.profile = pool_profile(reader)};
    if (!out->profile) {
        return ST_OK;
    }
    enum status st = pool_gather(reader, request, request->model, &choice, err);
    uint32_t n_full = st == ST_OK ? pool_count_full(&choice, NULL) : 0;
    out->full = n_full > 0 && n_full == choice.n;
    if (n_full > 0 && !out->full && reader->snapshot->spec->flow_control.on) {
        pool_leave_out_full(&choice, NULL);
        st = explain(reader, request, &choice, arena, out, err);
        if (st != ST_OK || choice.n > 0) {
            return st;
        }
        out->full = true;
        st = pool_gather(reader, request, request->model, &choice, err);
    }
    return st == ST_OK ? explain(reader, request, &choice, arena, out, err) : st;
}
