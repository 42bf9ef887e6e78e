/* A profile run one step at a time, with what each step did written down. */
#include "pick/pool/explain.h"

#include <stdlib.h>

#include "pick/pool/state.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the explanation");
}

static int compare(const void *a, const void *b) {
    uint32_t left = ((const struct pool_endpoint_explanation *)a)->member;
    uint32_t right = ((const struct pool_endpoint_explanation *)b)->member;
    return left < right ? -1 : left > right;
}

static struct pool_endpoint_explanation *find_explanation(const struct pool_explanation *self,
                                                          uint32_t member) {
    struct pool_endpoint_explanation key = {.member = member};
    return bsearch(&key, self->items, self->n, sizeof(key), compare);
}

static void fill_explanation(const struct candidate_set *candidates, uint32_t i,
                             struct pool_endpoint_explanation *out) {
    const struct candidate_columns *columns = candidates->columns;
    *out = (struct pool_endpoint_explanation){.member = columns->member[i],
                                              .known = columns->known[i],
                                              .in_flight = columns->in_flight[i],
                                              .n_waiting = columns->n_waiting[i],
                                              .n_running = columns->n_running[i],
                                              .kv_cache_used = columns->kv_cache_used[i]};
}

static enum status list_candidates(struct pool_explanation *self,
                                   const struct candidate_set *candidates, struct arena *arena,
                                   struct error *err) {
    self->items = arena_calloc(arena, candidates->n, sizeof(*self->items));
    if (!self->items) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        struct pool_endpoint_explanation *item = &self->items[self->n++];
        fill_explanation(candidates, i, item);
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
                       struct candidate_set *candidates) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->removed_by = step;
    }
    profile_run_filter(step, candidates);
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->removed_by = NULL;
    }
}

/* By itself, without its weight. */
static void run_scorer(struct pool_explanation *self, size_t scorer,
                       struct candidate_set *candidates) {
    struct profile_step step = self->profile->scorers[scorer];
    step.weight = 1;
    profile_reset_scores(candidates);
    profile_run_scorer(&step, candidates);
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->scores[scorer] =
            candidates->score[i];
    }
}

static void run_profile(struct pool_explanation *self, struct candidate_set *candidates) {
    const struct profile *profile = self->profile;
    for (size_t i = 0; i < profile->n_filters; i++) {
        run_filter(self, &profile->filters[i], candidates);
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        run_scorer(self, i, candidates);
    }
    profile_reset_scores(candidates);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        profile_run_scorer(&profile->scorers[i], candidates);
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        find_explanation(self, candidates->columns->member[i])->score = candidates->score[i];
    }
}

/* Of `choice`, which is left without those that the filters take away. */
static enum status explain_candidates(struct pool_reader *reader,
                                      const struct pool_request *request,
                                      struct candidate_set *candidates, struct arena *arena,
                                      struct pool_explanation *out, struct error *err) {
    pool_prompt_match(reader, out->profile, request, request->model);
    out->n = 0;
    enum status st = list_candidates(out, candidates, arena, err);
    if (st == ST_OK) {
        run_profile(out, candidates);
    }
    return st;
}

/* As pool_choose_by_profile. */
enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out, struct error *err) {
    struct candidate_set candidates;
    *out = (struct pool_explanation){.profile = pool_active_profile(reader)};
    if (!out->profile) {
        return ST_OK;
    }
    enum status st = pool_collect_candidates(reader, request, request->model, &candidates, err);
    uint32_t n_full = st == ST_OK ? pool_count_full_candidates(&candidates, NULL) : 0;
    out->full = n_full > 0 && n_full == candidates.n;
    if (n_full > 0 && !out->full && reader->snapshot->spec->flow_control.on) {
        pool_remove_full_candidates(&candidates, NULL);
        st = explain_candidates(reader, request, &candidates, arena, out, err);
        if (st != ST_OK || candidates.n > 0) {
            return st;
        }
        out->full = true;
        st = pool_collect_candidates(reader, request, request->model, &candidates, err);
    }
    return st == ST_OK ? explain_candidates(reader, request, &candidates, arena, out, err) : st;
}
