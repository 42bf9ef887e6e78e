/* A table with a column for each scorer, which is as wide as its head. */
#include "pick/session/explain_profile.h"

#include <stdio.h>

enum { ENDPOINT_COLUMNS = 28, HEAD_BYTES = 96 };

/* "queue-scorer x 2"; a long name is cut. */
static int scorer_title(const struct profile_step *step, char head[HEAD_BYTES]) {
    int n = snprintf(head, HEAD_BYTES, "%.64s x %g", step->name.ptr, (double)step->weight);
    return n < HEAD_BYTES ? n : HEAD_BYTES - 1;
}

static void print_header(const struct profile *profile, struct buf *out) {
    buf_printf(out, "  %-*s  waiting  running  KV cache", ENDPOINT_COLUMNS, "profile");
    for (size_t i = 0; i < profile->n_scorers; i++) {
        char head[HEAD_BYTES];
        scorer_title(&profile->scorers[i], head);
        buf_printf(out, "  %s", head);
    }
    buf_printf(out, "  %7s\n", "sum");
}

/* What it has not said itself is in brackets: our own count. */
static void print_count(bool known, float n, struct buf *out) {
    buf_printf(out, known ? "  %7.0f" : "  (%5.0f)", (double)n);
}

static void print_load(const struct pool_endpoint_explanation *seen, struct buf *out) {
    print_count(seen->known & LOAD_WAITING, seen->n_waiting, out);
    print_count(seen->known & LOAD_RUNNING, seen->n_running, out);
    if (seen->known & LOAD_KV_CACHE) {
        buf_printf(out, "  %6.1f %%", (double)seen->kv_cache_used * 100);
    } else {
        buf_printf(out, "  %8s", "?");
    }
}

static void print_endpoint(const struct pool_snapshot *snapshot, const struct profile *profile,
                           const struct pool_endpoint_explanation *item, struct buf *out) {
    buf_printf(out, "  %-*s", ENDPOINT_COLUMNS, snapshot->members[item->member].endpoint->text);
    print_load(item, out);
    if (item->removed_by) {
        buf_printf(out, "  taken away by %.*s\n", STR_ARG(item->removed_by->name));
        return;
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        char head[HEAD_BYTES];
        buf_printf(out, "  %*.3f", scorer_title(&profile->scorers[i], head),
                   (double)item->scores[i]);
    }
    buf_printf(out, "  %7.3f\n", (double)item->score);
}

void pick_explain_profile(const struct pool_snapshot *snapshot,
                          const struct pool_explanation *explanation, struct buf *out) {
    print_header(explanation->profile, out);
    for (size_t i = 0; i < explanation->n; i++) {
        print_endpoint(snapshot, explanation->profile, &explanation->items[i], out);
    }
    buf_printf(out, "  picker: %.*s\n\n", STR_ARG(explanation->profile->picker.name));
}
