/* The report as text: sentences about the run and its results, and the table. Columns are as wide
 * as their contents, and numbers are right-aligned. */
#include "program/loadgen/report/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/plural.h"
#include "program/loadgen/arrivals.h"
#include "program/loadgen/report/text.h"

/* ---- the run --------------------------------------------------------------------------------- */

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

void bench_plan_print(struct buf *out, const struct bench_result *result) {
    const struct bench_options *options = &result->settings->options;
    char text[BENCH_TEXT_BYTES];
    if (options->n_requests > 0) {
        buf_printf(out, "each step: %s request%s", bench_text_count(options->n_requests, text),
                   plural_s(options->n_requests));
    } else {
        buf_printf(out, "each step: %s", bench_text_span(options->duration_ns, text));
    }
    if (options->warm_up_ns > 0) {
        buf_printf(out, ", after %s of warm-up", bench_text_span(options->warm_up_ns, text));
    }
    bool shares = result->call->protocol->channel && !options->reconnect;
    if (options->rate) {
        buf_printf(out, ", %s arrivals on at most %u %s",
                   options->arrival == BENCH_ARRIVAL_POISSON ? "random (Poisson)" : "regular",
                   result->settings->plan.steps[0].concurrency, shares ? "calls" : "connections");
    }
    if (options->reconnect) {
        buf_add_str(out, STR(", a connection for each request"));
    } else if (shares && options->n_connections > 0) {
        buf_printf(out, ", calls over %" PRIu64 " %s", options->n_connections,
                   options->n_connections == 1 ? "connection" : "connections");
    } else if (shares) {
        buf_add_str(out, STR(", calls over a connection for each thread"));
    }
}

void bench_best_print(struct buf *out, const struct bench_result *result) {
    const struct bench_step_result *best = bench_best_step(result),
                                   *enough = bench_knee_step(result);
    uint64_t limit = result->settings->options.max_p99_ns;
    char text[BENCH_TEXT_BYTES], name[BENCH_TEXT_BYTES], p99[BENCH_TEXT_BYTES];
    if (!best) {
        if (limit > 0 && result->n_steps > 0) {
            buf_printf(out, "No step kept its p99 within %s", bench_text_span(limit, text));
        }
        return;
    }
    if (limit > 0) {
        buf_printf(out, "Best with p99 within %s: ", bench_text_span(limit, text));
    } else {
        buf_add_str(out, STR("Best: "));
    }
    buf_printf(out, "%s requests/s at %s, 99\u00a0%% of them within %s ms",
               bench_text_number(bench_rate(best), text), bench_text_step(&best->step, name),
               bench_text_ms(bench_p99_ns(best), p99));
    if (enough) {
        buf_printf(out, "; %s already has %s of that rate, 99\u00a0%% within %s ms",
                   bench_text_step(&enough->step, name),
                   bench_text_percent(bench_rate(enough) / bench_rate(best), text),
                   bench_text_ms(bench_p99_ns(enough), p99));
    }
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* The first message, without the " (HTTP 503)" at its end that the note says before it. */
static struct str without_reason(const struct bench_failure *failure) {
    struct str text = str_of(failure->first);
    char end[32];
    int n = snprintf(end, sizeof end, " (HTTP %d)", (int)failure->http_status);
    if (failure->http_status > 0 && str_ends_with(text, str_make(end, (size_t)n))) {
        text.len -= (size_t)n;
    }
    return text;
}

static bool failure_note(struct buf *out, const struct bench_step_result *step, size_t *index) {
    char name[BENCH_TEXT_BYTES], count[BENCH_TEXT_BYTES];
    if (*index >= step->stats.n_failures) {
        *index -= step->stats.n_failures;
        return false;
    }
    const struct bench_failure *failure = &step->stats.failures[*index];
    buf_printf(out, "%s: %s %s failed, ", bench_text_step(&step->step, name),
               bench_text_count(failure->count, count),
               failure->count == 1 ? "request" : "requests");
    bench_failure_print(out, failure);
    buf_printf(out, ": %.*s", STR_ARG(without_reason(failure)));
    return true;
}

/* A warning for steps beyond a limit. One note covers all such steps and describes the worst. */
struct concern {
    double (*measure)(const struct bench_step_result *step);
    double limit;
    void (*print)(struct buf *out, const struct bench_step_result *worst);
};

static double unsent_share(const struct bench_step_result *step) {
    double unsent = (double)step->stats.n_unsent;
    double begun = (double)(bench_n_requests(step) + step->stats.n_abandoned);
    return bench_kept_up(step) ? 0 : unsent / (begun + unsent);
}

static void print_unsent(struct buf *out, const struct bench_step_result *worst) {
    char rate[BENCH_TEXT_BYTES], count[BENCH_TEXT_BYTES];
    buf_printf(out,
               "the server did not keep up: only %s/s were answered, and %s request%s never "
               "sent because all %u "
               "connections waited; latencies grew for as long as the step took",
               bench_text_number(bench_rate(worst), rate),
               bench_text_count(worst->stats.n_unsent, count),
               worst->stats.n_unsent == 1 ? " was" : "s were", worst->step.concurrency);
}

static void print_busy(struct buf *out, const struct bench_step_result *worst) {
    char percent[BENCH_TEXT_BYTES];
    buf_printf(
        out,
        "the load generator was busy %s of the time (%u thread%s) and may be the bottleneck: use "
        "more --threads, or another machine",
        bench_text_percent(bench_cpu_share(worst), percent), worst->n_threads,
        plural_s(worst->n_threads));
}

static double lag_p99_ns(const struct bench_step_result *step) {
    return (double)bench_histogram_quantile(&step->stats.lag, 0.99);
}

static void print_lag(struct buf *out, const struct bench_step_result *worst) {
    char ms[BENCH_TEXT_BYTES];
    buf_printf(out,
               "the load generator itself began requests up to %s ms late (p99), which is part of "
               "the latencies",
               bench_text_ms((uint64_t)lag_p99_ns(worst), ms));
}

static void print_unsteady(struct buf *out, const struct bench_step_result *worst) {
    char percent[BENCH_TEXT_BYTES];
    buf_printf(
        out,
        "the rate varied by up to %s while it was measured; a longer --duration or --warm-up "
        "would give a steadier rate",
        bench_text_percent(bench_rate_variation(worst), percent));
}

static double n_abandoned(const struct bench_step_result *step) {
    return (double)step->stats.n_abandoned;
}

static void print_abandoned(struct buf *out, const struct bench_step_result *worst) {
    char count[BENCH_TEXT_BYTES];
    buf_printf(out, "%s request%s in flight when the run was interrupted",
               bench_text_count(worst->stats.n_abandoned, count),
               worst->stats.n_abandoned == 1 ? " was" : "s were");
}

static const struct concern concerns[] = {
    {unsent_share, 0, print_unsent},   {bench_cpu_share, 0.8, print_busy},
    {lag_p99_ns, 1e6, print_lag},      {bench_rate_variation, 0.2, print_unsteady},
    {n_abandoned, 0, print_abandoned},
};
enum { N_CONCERNS = sizeof(concerns) / sizeof(*concerns) };

/* Returns: whether any step is beyond the limit. */
static bool concern_note(struct buf *out, const struct bench_result *result,
                         const struct concern *concern) {
    const struct bench_step_result *worst = NULL;
    char name[BENCH_TEXT_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < result->n_steps; i++) {
        const struct bench_step_result *step = result->steps[i];
        double value = concern->measure(step);
        n += value > concern->limit;
        if (value > concern->limit && (!worst || value > concern->measure(worst))) {
            worst = step;
        }
    }
    if (!worst) {
        return false;
    }
    buf_add_str(out, str_of(bench_text_step(&worst->step, name)));
    if (n > 1) {
        buf_printf(out, " (the worst of %zu such steps)", n);
    }
    buf_add_str(out, STR(": "));
    concern->print(out, worst);
    return true;
}

bool bench_note_print(struct buf *out, const struct bench_result *result, size_t index) {
    size_t n_steps = result->settings->plan.n_steps, before = out->len;
    for (size_t i = 0; i < result->n_steps; i++) {
        if (failure_note(out, result->steps[i], &index)) {
            return true;
        }
    }
    for (size_t i = 0; i < N_CONCERNS; i++) {
        if (concern_note(out, result, &concerns[i]) && index-- == 0) {
            return true;
        }
        out->len = before;
    }
    if (index > 0 || (!result->interrupted && result->n_steps == n_steps)) {
        return false;
    }
    buf_printf(out, "%zu of %zu steps were run%s", result->n_steps, n_steps,
               result->interrupted ? "; the last was interrupted" : "");
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { MAX_COLUMNS = 14, GAP = 2 };

/* A column of the table; `print` writes the cell of a step. */
struct column {
    const char *title;
    void (*print)(const struct bench_result *result, const struct bench_step_result *step,
                  double quantile, char out[BENCH_TEXT_BYTES]);
    double quantile;
    bool (*wanted)(const struct bench_result *result); /* NULL: always */
};

static void print_load(const struct bench_result *result, const struct bench_step_result *step,
                       double quantile, char out[BENCH_TEXT_BYTES]) {
    (void)quantile;
    if (result->settings->options.rate) {
        bench_text_number(step->step.rate, out);
    } else {
        bench_text_count(step->step.concurrency, out);
    }
}

static void print_rate(const struct bench_result *result, const struct bench_step_result *step,
                       double quantile, char out[BENCH_TEXT_BYTES]) {
    (void)result;
    (void)quantile;
    bench_text_number(bench_rate(step), out);
}

static void print_elements(const struct bench_result *result, const struct bench_step_result *step,
                           double quantile, char out[BENCH_TEXT_BYTES]) {
    (void)quantile;
    bench_text_number(bench_rate(step) * (double)result->call->batch, out);
}

static void print_quantile(const struct bench_result *result, const struct bench_step_result *step,
                           double quantile, char out[BENCH_TEXT_BYTES]) {
    (void)result;
    if (bench_histogram_total(&step->stats.latency) == 0) {
        snprintf(out, BENCH_TEXT_BYTES, "-");
    } else {
        bench_text_ms(bench_histogram_quantile(&step->stats.latency, quantile), out);
    }
}

static void print_failures(const struct bench_result *result, const struct bench_step_result *step,
                           double quantile, char out[BENCH_TEXT_BYTES]) {
    (void)result;
    (void)quantile;
    bench_text_count(step->stats.n_failed, out);
}

static void print_bytes(const struct bench_result *result, const struct bench_step_result *step,
                        double quantile, char out[BENCH_TEXT_BYTES]) {
    (void)result;
    (void)quantile;
    bench_text_number(bench_byte_rate(step) / 1e6, out);
}

static bool has_rate(const struct bench_result *result) {
    return result->settings->options.rate != NULL;
}

static bool has_no_rate(const struct bench_result *result) {
    return !has_rate(result);
}

static bool has_batch(const struct bench_result *result) {
    return !result->call->ping && result->call->batch > 1;
}

static bool has_bytes(const struct bench_result *result) {
    return !result->call->ping;
}

static const struct column columns[] = {
    {"concurrency", print_load, 0, has_no_rate}, {"wanted/s", print_load, 0, has_rate},
    {"requests/s", print_rate, 0, NULL},         {"infer/s", print_elements, 0, has_batch},
    {"p50 ms", print_quantile, 0.5, NULL},       {"p90", print_quantile, 0.9, NULL},
    {"p95", print_quantile, 0.95, NULL},         {"p99", print_quantile, 0.99, NULL},
    {"p99.9", print_quantile, 0.999, NULL},      {"max", print_quantile, 1, NULL},
    {"errors", print_failures, 0, NULL},         {"MB/s", print_bytes, 0, has_bytes},
};
_Static_assert(sizeof(columns) / sizeof(*columns) <= MAX_COLUMNS, "raise MAX_COLUMNS");
enum { N_COLUMNS = sizeof(columns) / sizeof(*columns) };

static bool is_wanted(const struct bench_result *result, size_t column) {
    return !columns[column].wanted || columns[column].wanted(result);
}

static void print_cell(struct buf *out, const char *text, size_t width) {
    size_t n = strlen(text);
    for (size_t i = n; i < width + GAP; i++) {
        buf_add_char(out, ' ');
    }
    buf_add(out, text, n);
}

static void print_table(struct buf *out, const struct bench_result *result) {
    size_t widths[MAX_COLUMNS];
    char text[BENCH_TEXT_BYTES];
    for (size_t k = 0; k < N_COLUMNS; k++) {
        widths[k] = strlen(columns[k].title);
        for (size_t i = 0; i < result->n_steps; i++) {
            columns[k].print(result, result->steps[i], columns[k].quantile, text);
            widths[k] = strlen(text) > widths[k] ? strlen(text) : widths[k];
        }
        if (is_wanted(result, k)) {
            print_cell(out, columns[k].title, widths[k]);
        }
    }
    buf_add_char(out, '\n');
    for (size_t i = 0; i < result->n_steps; i++) {
        for (size_t k = 0; k < N_COLUMNS; k++) {
            columns[k].print(result, result->steps[i], columns[k].quantile, text);
            if (is_wanted(result, k)) {
                print_cell(out, text, widths[k]);
            }
        }
        buf_add_char(out, '\n');
    }
}

static void print_head(struct buf *out, const struct bench_result *result) {
    char text[BENCH_TEXT_BYTES];
    buf_printf(out, "%s", result->call->url);
    if (result->settings->options.model) {
        buf_printf(out, " %s", result->settings->options.model);
    }
    buf_add_str(out, STR("\n  "));
    bench_request_print(out, result);
    buf_add_str(out, STR("\n  "));
    bench_plan_print(out, result);
    buf_printf(out, "\n  first request, with connecting: %s\n",
               bench_text_span(result->first_ns, text));
    buf_add_str(
        out,
        STR("  times in ms: half of the requests took at most p50, 99\u00a0% at most p99\n\n"));
}

void bench_report_print(struct buf *out, const struct bench_result *result) {
    print_head(out, result);
    print_table(out, result);
    size_t before = out->len;
    buf_add_char(out, '\n');
    bench_best_print(out, result);
    if (out->len == before + 1) {
        out->len = before;
    } else {
        buf_add_char(out, '\n');
    }
    for (size_t i = 0;; i++) {
        before = out->len;
        buf_add_str(out, i == 0 ? STR("\nNote: ") : STR("Note: "));
        if (!bench_note_print(out, result, i)) {
            out->len = before;
            return;
        }
        buf_add_char(out, '\n');
    }
}
