/* The sentences around the table: what was run, how, and what to think of it. */
#include <inttypes.h>

#include "cli/bench_pace.h"
#include "cli/bench_report.h"
#include "cli/bench_text.h"

/* Past these a reader should know. */
static const double busy_limit = 0.8, unsteady_limit = 0.15;
static const uint64_t lag_limit_ns = 1000000;

/* ---- what was run ---------------------------------------------------------------------------- */

void bench_request_print(struct buf *out, const struct bench_result *result) {
    static const char *const forms[] = {"binary", "JSON", "raw binary"};
    const struct bench_call *call = result->call;
    char text[BENCH_TEXT_BYTES];
    buf_add_str(out, str_of(call->protocol->name));
    if (call->ping) {
        buf_add_str(out, STR(", pings"));
        return;
    }
    if (!result->settings->mip) {
        buf_printf(out, ", %s", forms[result->settings->options.form]);
    }
    buf_printf(out, ", batch %" PRIu64, call->batch);
    buf_printf(out, ", %s bytes a request", bench_text_count(call->n_bytes, text));
}

void bench_load_print(struct buf *out, const struct bench_result *result) {
    const struct bench_options *options = &result->settings->options;
    char text[BENCH_TEXT_BYTES];
    if (options->n_requests > 0) {
        buf_printf(out, "%s requests a step", bench_text_count(options->n_requests, text));
    } else {
        buf_printf(out, "%s a step", bench_text_span(options->duration_ns, text));
    }
    if (options->warm_up_ns > 0) {
        buf_printf(out, " after %s of warm-up", bench_text_span(options->warm_up_ns, text));
    }
    if (options->rate) {
        buf_printf(out, ", %s arrivals on at most %u connections",
                   options->arrival == BENCH_ARRIVAL_POISSON ? "random (Poisson)" : "regular",
                   result->settings->plan.steps[0].concurrency);
    }
    if (options->reconnect) {
        buf_add_str(out, STR(", a connection for each request"));
    }
}

void bench_best_print(struct buf *out, const struct bench_result *result) {
    const struct bench_step_result *best = bench_best(result), *enough = bench_enough(result);
    uint64_t limit = result->settings->options.max_p99_ns;
    char text[BENCH_TEXT_BYTES], name[BENCH_TEXT_BYTES], p99[BENCH_TEXT_BYTES];
    if (!best) {
        if (limit > 0 && result->n_steps > 0) {
            buf_printf(out, "No step kept its p99 within %s", bench_text_span(limit, text));
        }
        return;
    }
    if (limit > 0) {
        buf_printf(out, "Most with p99 within %s: ", bench_text_span(limit, text));
    } else {
        buf_add_str(out, STR("Most: "));
    }
    buf_printf(out, "%s requests/s at %s, p99 %s ms", bench_text_number(bench_rate(best), text),
               bench_text_step(&best->step, name), bench_text_ms(bench_p99_ns(best), p99));
    if (enough) {
        buf_printf(out, "; %s of that already at %s, p99 %s ms",
                   bench_text_percent(bench_rate(enough) / bench_rate(best), text),
                   bench_text_step(&enough->step, name), bench_text_ms(bench_p99_ns(enough), p99));
    }
}

/* ---- what to think of it --------------------------------------------------------------------- */

static bool failure_note(struct buf *out, const struct bench_step_result *step, size_t *index) {
    char name[BENCH_TEXT_BYTES], count[BENCH_TEXT_BYTES];
    if (*index >= step->stats.n_failures) {
        *index -= step->stats.n_failures;
        return false;
    }
    const struct bench_failure *failure = &step->stats.failures[*index];
    buf_printf(out, "%s: %s × ", bench_text_step(&step->step, name),
               bench_text_count(failure->count, count));
    bench_failure_print(out, failure);
    buf_printf(out, ": %s", failure->first);
    return true;
}

static bool unsent_note(struct buf *out, const struct bench_step_result *step) {
    char name[BENCH_TEXT_BYTES], count[BENCH_TEXT_BYTES], rate[BENCH_TEXT_BYTES];
    const struct bench_stats *stats = &step->stats;
    if (bench_kept_up(step)) {
        return false;
    }
    buf_printf(out,
               "%s: not kept up: only %s/s were answered, and %s requests were never sent because "
               "all %u connections waited; latencies grew for as long as the step took",
               bench_text_step(&step->step, name), bench_text_number(bench_rate(step), rate),
               bench_text_count(stats->n_unsent, count), step->step.concurrency);
    return true;
}

static bool busy_note(struct buf *out, const struct bench_step_result *step) {
    char name[BENCH_TEXT_BYTES], percent[BENCH_TEXT_BYTES];
    if (bench_busy(step) < busy_limit) {
        return false;
    }
    buf_printf(out,
               "%s: the load generator was busy %s of the time (%u thread%s): it may be what is "
               "measured here; more --threads, or another machine",
               bench_text_step(&step->step, name), bench_text_percent(bench_busy(step), percent),
               step->n_threads, step->n_threads == 1 ? "" : "s");
    return true;
}

static bool lag_note(struct buf *out, const struct bench_step_result *step) {
    char name[BENCH_TEXT_BYTES], ms[BENCH_TEXT_BYTES];
    uint64_t lag = bench_histogram_quantile(&step->stats.lag, 0.99);
    if (lag < lag_limit_ns) {
        return false;
    }
    buf_printf(out,
               "%s: the load generator itself began requests up to %s ms late (p99), which is part "
               "of the latencies",
               bench_text_step(&step->step, name), bench_text_ms(lag, ms));
    return true;
}

static bool unsteady_note(struct buf *out, const struct bench_step_result *step) {
    char name[BENCH_TEXT_BYTES], percent[BENCH_TEXT_BYTES];
    double share = bench_unsteadiness(step);
    if (share < unsteady_limit) {
        return false;
    }
    buf_printf(out,
               "%s: the rate varied by up to %s while it was measured; a longer --duration "
               "or --warm-up would say more",
               bench_text_step(&step->step, name), bench_text_percent(share, percent));
    return true;
}

static bool abandoned_note(struct buf *out, const struct bench_step_result *step) {
    char name[BENCH_TEXT_BYTES], count[BENCH_TEXT_BYTES];
    if (step->stats.n_abandoned == 0) {
        return false;
    }
    buf_printf(out, "%s: %s requests were unanswered when the run was ended",
               bench_text_step(&step->step, name),
               bench_text_count(step->stats.n_abandoned, count));
    return true;
}

/* The notes of one step: those of failures, then the others. Takes from *index how many of them are
 * passed over. Returns: whether one was printed. */
static bool step_note(struct buf *out, const struct bench_step_result *step, size_t *index) {
    static bool (*const notes[])(struct buf *, const struct bench_step_result *) = {
        unsent_note, busy_note, lag_note, unsteady_note, abandoned_note};
    if (failure_note(out, step, index)) {
        return true;
    }
    for (size_t i = 0; i < sizeof(notes) / sizeof(*notes); i++) {
        size_t before = out->len;
        if (!notes[i](out, step)) {
            continue;
        }
        if (*index == 0) {
            return true;
        }
        --*index;
        out->len = before;
    }
    return false;
}

bool bench_note_print(struct buf *out, const struct bench_result *result, size_t index) {
    size_t n_steps = result->settings->plan.n_steps;
    for (size_t i = 0; i < result->n_steps; i++) {
        if (step_note(out, result->steps[i], &index)) {
            return true;
        }
    }
    if (index > 0 || (!result->interrupted && result->n_steps == n_steps)) {
        return false;
    }
    buf_printf(out, "%zu of %zu steps were run%s", result->n_steps, n_steps,
               result->interrupted ? "; the last was ended early" : "");
    return true;
}
