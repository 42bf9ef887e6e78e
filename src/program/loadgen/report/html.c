/* The page: its style, its charts, and its sections from top to bottom. Colours are few and named
 * once; dark ones replace them where the reader's system is dark. Lines and areas take their hue
 * from the drawing and their lightness from the style. */
#include "program/loadgen/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/plural.h"
#include "core/tensor/datatype.h"
#include "core/tensor/shape.h"
#include "program/loadgen/report/chart.h"
#include "program/loadgen/report/text.h"

/* ---- style ----------------------------------------------------------------------------------- */

static const char page_style[] =
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2430;--soft:#5d6b7c;"
    "--rule:#dfe4ea;--best:#eaf3ff;--warn:#fff6e0;--warn-rule:#e0a100;--bad:#c22f2f;--ok:#1f7a4d;"
    "--light:45%;--vivid:68%}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#11161d;--card:#19212b;--ink:#e6ebf1;"
    "--soft:#98a6b6;--rule:#2c3744;--best:#1b2c42;--warn:#2e2712;--warn-rule:#c8951a;"
    "--bad:#ff8585;--ok:#5fce97;--light:62%;--vivid:72%}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif}\n"
    "main{max-width:1180px;margin:0 auto;padding:28px 20px 56px}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}\n"
    "h2{font-size:1.1rem;margin:34px 0 10px}\n"
    "p{margin:0 0 8px}\n"
    ".soft{color:var(--soft);overflow-wrap:anywhere}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(205px,1fr));gap:14px;"
    "margin:22px 0}\n"
    ".tile,figure,.card,.notes li{background:var(--card);border:1px solid var(--rule);"
    "border-radius:10px}\n"
    ".tile{padding:14px 16px}\n"
    ".tile b{display:block;font-size:1.55rem;line-height:1.25;font-weight:650;"
    "font-variant-numeric:tabular-nums}\n"
    ".tile span{color:var(--soft);font-size:.87rem}\n"
    ".tile .unit{font-size:.95rem;font-weight:400;color:var(--soft)}\n"
    ".bad{color:var(--bad)}.good{color:var(--ok)}\n"
    ".notes{list-style:none;padding:0;margin:0 0 18px;display:grid;gap:8px}\n"
    ".notes li{padding:9px 14px;background:var(--warn);border-left:4px solid var(--warn-rule);"
    "overflow-wrap:anywhere}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));"
    "gap:16px}\n"
    "figure{margin:0;padding:14px 14px 10px;break-inside:avoid}\n"
    "figcaption{font-weight:600;margin-bottom:6px}\n"
    "svg{display:block;width:100%;max-width:620px;height:auto;margin:0 auto}\n"
    "svg text{font-size:13px;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
    ".grid{stroke:var(--rule);stroke-width:1}\n"
    ".axis,.tick{stroke:var(--soft);stroke-width:1}\n"
    ".line{fill:none;stroke:hsl(var(--hue) var(--vivid) var(--light));stroke-width:2.2;"
    "stroke-linejoin:round;stroke-linecap:round}\n"
    ".dot{fill:hsl(var(--hue) var(--vivid) var(--light));stroke:var(--card);stroke-width:1.5}\n"
    ".area{fill:hsl(var(--hue) var(--vivid) var(--light)/.42);"
    "stroke:hsl(var(--hue) var(--vivid) var(--light));stroke-width:1}\n"
    ".mark{stroke:var(--ink);stroke-width:1.4}\n"
    ".dashed{stroke-dasharray:3 3}\n"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:4px 0 0;padding:0;"
    "font-size:.87rem;color:var(--soft)}\n"
    ".legend li::before{content:'';display:inline-block;width:14px;height:4px;border-radius:2px;"
    "margin-right:6px;vertical-align:middle;"
    "background:hsl(var(--hue) var(--vivid) var(--light))}\n"
    ".key{font-size:.87rem;color:var(--soft);margin:4px 0 0}\n"
    ".card{overflow-x:auto;padding:4px 0}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;"
    "white-space:nowrap}\n"
    "th,td{padding:7px 14px;text-align:right;border-bottom:1px solid var(--rule)}\n"
    "tr:last-child td{border-bottom:0}\n"
    "th{font-weight:600;color:var(--soft);font-size:.87rem}\n"
    ".left{text-align:left}\n"
    ".best td{background:var(--best);font-weight:600}\n"
    ".spark{width:96px;height:22px;margin:0 0 0 auto}\n"
    ".spark .line{stroke-width:1.3}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0;padding:10px "
    "16px}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    "code{font:.9em/1.5 ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
    "overflow-wrap:anywhere;white-space:pre-wrap}\n"
    "@media(max-width:600px){main{padding:18px 12px 40px}h1{font-size:1.35rem}"
    ".tiles{grid-template-columns:1fr 1fr;gap:10px}.tile{padding:10px 12px}"
    ".tile b{font-size:1.3rem}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}"
    "figure{padding:10px 8px 8px}}\n"
    "@media print{:root{--page:#fff}body{font-size:12px}main{padding:0}}\n";

/* ---- charts ---------------------------------------------------------------------------------- */

enum {
    CURVE_POINTS = 121,
    MAX_BINS = 72,
    N_PERCENTILES = 4,
    MAX_NINES = 6,
};

struct figures {
    struct buf *out;
    const struct bench_result *result;
    const struct bench_step_result *steps[BENCH_MAX_STEPS]; /* steps with answers */
    double hues[BENCH_MAX_STEPS];
    char names[BENCH_MAX_STEPS][BENCH_TEXT_BYTES];
    double loads[BENCH_MAX_STEPS];
    struct bench_mark marks[BENCH_MAX_STEPS]; /* at the loads */
    size_t n;
    bool open; /* open loop: the load is a rate */
};

/* The hue of step `index` of `n`: from blue, for the first, over red to orange. */
static double step_hue(size_t index, size_t n) {
    return n > 1 ? fmod(215 + 175 * (double)index / (double)(n - 1), 360) : 215;
}

static double quantile_ms(const struct bench_step_result *step, double quantile) {
    return (double)bench_histogram_quantile(&step->stats.latency, quantile) / 1e6;
}

/* ---- over the load --------------------------------------------------------------------------- */

static void load_axis(const struct figures *figures, struct bench_chart *chart) {
    double min = INFINITY, max = 0;
    for (size_t i = 0; i < figures->n; i++) {
        min = fmin(min, figures->loads[i]);
        max = fmax(max, figures->loads[i]);
    }
    bench_scale_fit(&chart->x, min, max);
    /* The limits are those of the steps, not round numbers. */
    chart->x.from = chart->x.log ? min / 1.15 : 0;
    chart->x.to = chart->x.log ? max * 1.15 : max * 1.04;
    chart->marks = figures->marks;
    chart->n_marks = figures->n;
    chart->x_label = figures->open ? "requests/s wanted" : "concurrency";
}

static void print_throughput(struct figures *figures) {
    double rates[BENCH_MAX_STEPS], max = 0;
    struct bench_series series[2] = {
        {"answered", 215, figures->loads, rates, figures->n, true},
        {"wanted", 40, figures->loads, figures->loads, figures->n, false}};
    struct bench_chart chart = {.title = figures->open
                                             ? "Throughput over the rate wanted, requests/s"
                                             : "Throughput over concurrency, requests/s",
                                .series = series,
                                .n_series = figures->open ? 2 : 1};
    if (!figures->open) {
        series[0].name = "requests/s";
    }
    for (size_t i = 0; i < figures->n; i++) {
        rates[i] = bench_rate(figures->steps[i]);
        max = fmax(max, fmax(rates[i], figures->open ? figures->loads[i] : 0));
    }
    bench_scale_linear(&chart.y, max);
    load_axis(figures, &chart);
    bench_chart_print(figures->out, &chart);
}

static void print_latency(struct figures *figures) {
    static const struct {
        const char *name;
        double quantile, hue;
    } rows[N_PERCENTILES] = {
        {"p99.9", 0.999, 350}, {"p99", 0.99, 30}, {"p90", 0.9, 165}, {"p50", 0.5, 215}};
    double values[N_PERCENTILES][BENCH_MAX_STEPS], min = INFINITY, max = 0;
    struct bench_series series[N_PERCENTILES];
    struct bench_chart chart = {.title = figures->open ? "Latency over the rate wanted, ms"
                                                       : "Latency over concurrency, ms",
                                .series = series,
                                .n_series = N_PERCENTILES};
    for (size_t k = 0; k < N_PERCENTILES; k++) {
        for (size_t i = 0; i < figures->n; i++) {
            values[k][i] = quantile_ms(figures->steps[i], rows[k].quantile);
            min = fmin(min, values[k][i]);
            max = fmax(max, values[k][i]);
        }
        series[k] = (struct bench_series){rows[k].name, rows[k].hue, figures->loads,
                                          values[k],    figures->n,  true};
    }
    bench_scale_fit(&chart.y, min, max);
    load_axis(figures, &chart);
    bench_chart_print(figures->out, &chart);
}

/* ---- each step ------------------------------------------------------------------------------- */

/* The percentile axis: each further nine has the same width. */
static double count_nines(double quantile) {
    return -log10(1 - quantile);
}

/* As many nines as the number of requests can resolve. */
static double most_nines(const struct figures *figures) {
    uint64_t most = 0;
    for (size_t i = 0; i < figures->n; i++) {
        uint64_t n = bench_histogram_total(&figures->steps[i]->stats.latency);
        most = n > most ? n : most;
    }
    return fmin(MAX_NINES, fmax(1, log10((double)most)));
}

static void print_percentiles(struct figures *figures) {
    static const struct bench_mark marks[] = {{0, "0 %"},    {0.30103, "50"}, {1, "90"},
                                              {2, "99"},     {3, "99.9"},     {4, "99.99"},
                                              {5, "99.999"}, {6, "99.9999"}};
    struct bench_series series[BENCH_MAX_STEPS];
    double end = most_nines(figures), min = INFINITY, max = 0;
    struct bench_chart chart = {.title = "Latency by percentile, ms",
                                .x_label = "percent of requests that took no longer",
                                .x = {.from = 0, .to = end},
                                .marks = marks,
                                .series = series,
                                .n_series = figures->n};
    double *points =
        arena_calloc(figures->out->arena, figures->n * 2 * CURVE_POINTS, sizeof(double));
    if (!points) {
        figures->out->failed = true;
        return;
    }
    while (chart.n_marks < sizeof(marks) / sizeof(*marks) && marks[chart.n_marks].at <= end) {
        chart.n_marks++;
    }
    for (size_t i = 0; i < figures->n; i++) {
        double *x = points + i * 2 * CURVE_POINTS, *y = x + CURVE_POINTS;
        double n = (double)bench_histogram_total(&figures->steps[i]->stats.latency);
        double own_end = fmin(end, fmax(1, count_nines(1 - 1 / fmax(n, 10))));
        for (size_t k = 0; k < CURVE_POINTS; k++) {
            x[k] = own_end * (double)k / (CURVE_POINTS - 1);
            y[k] = quantile_ms(figures->steps[i], 1 - pow(10, -x[k]));
            min = fmin(min, y[k]);
            max = fmax(max, y[k]);
        }
        series[i] =
            (struct bench_series){figures->names[i], figures->hues[i], x, y, CURVE_POINTS, false};
    }
    bench_scale_fit(&chart.y, min, max);
    bench_chart_print(figures->out, &chart);
}

/* Computes the height of each bin of a logarithmic axis, relative to the highest. */
static void fill_bins(const struct bench_histogram *histogram, const struct bench_scale *scale,
                      double *heights, size_t n) {
    double most = 0, ratio = log(scale->to / scale->from);
    uint64_t below = 0;
    for (size_t i = 0; i < n; i++) {
        double to_ms = scale->from * exp(ratio * (double)(i + 1) / (double)n);
        uint64_t now = i + 1 < n ? bench_histogram_below(histogram, (uint64_t)(to_ms * 1e6))
                                 : bench_histogram_total(histogram);
        heights[i] = (double)(now - below);
        below = now;
        most = fmax(most, heights[i]);
    }
    for (size_t i = 0; i < n; i++) {
        heights[i] = most > 0 ? heights[i] / most : 0;
    }
}

static void print_distributions(struct figures *figures) {
    struct bench_ridge rows[BENCH_MAX_STEPS];
    double min = INFINITY, max = 0;
    for (size_t i = 0; i < figures->n; i++) {
        const struct bench_histogram *latency = &figures->steps[i]->stats.latency;
        min = fmin(min, fmax(1e-6, (double)latency->min_ns / 1e6));
        max = fmax(max, quantile_ms(figures->steps[i], 0.999));
    }
    struct bench_ridges ridges = {
        .title = "Distribution of latencies, ms",
        .x_label = "ms",
        .row_label =
            figures->open
                ? "A row for each rate; the line is the median, the dashed one p99."
                : "A row for each concurrency; the line is the median, the dashed one p99.",
        .rows = rows,
        .n_rows = figures->n};
    bench_scale_log(&ridges.x, min, fmax(max, min));
    /* A bin spans at least three buckets of the histogram; narrower ones would be empty at
     * random. */
    size_t n = (size_t)fmin(MAX_BINS, fmax(8, log(ridges.x.to / ridges.x.from) * 42));
    for (size_t i = 0; i < figures->n; i++) {
        const struct bench_step_result *step = figures->steps[i];
        double *heights = arena_calloc(figures->out->arena, n, sizeof(*heights));
        if (!heights) {
            figures->out->failed = true;
            return;
        }
        fill_bins(&step->stats.latency, &ridges.x, heights, n);
        rows[i] = (struct bench_ridge){figures->marks[i].text, figures->hues[i],       heights, n,
                                       quantile_ms(step, 0.5), quantile_ms(step, 0.99)};
    }
    bench_ridges_print(figures->out, &ridges);
}

/* ---- all charts ------------------------------------------------------------------------------ */

static void collect_figures(struct figures *figures) {
    const struct bench_result *result = figures->result;
    for (size_t i = 0; i < result->n_steps; i++) {
        const struct bench_step_result *step = result->steps[i];
        char number[BENCH_TEXT_BYTES];
        size_t k = figures->n;
        if (bench_histogram_total(&step->stats.latency) == 0) {
            continue;
        }
        figures->steps[k] = step;
        figures->hues[k] = step_hue(i, result->n_steps);
        figures->loads[k] = figures->open ? step->step.rate : step->step.concurrency;
        figures->marks[k].at = figures->loads[k];
        snprintf(figures->marks[k].text, sizeof(figures->marks[k].text), "%.15s",
                 figures->open ? bench_text_number(step->step.rate, number)
                               : bench_text_count(step->step.concurrency, number));
        bench_text_step(&step->step, figures->names[k]);
        figures->n++;
    }
}

/* Are there several different loads? */
static bool has_sweep(const struct figures *figures) {
    for (size_t i = 1; i < figures->n; i++) {
        if (figures->loads[i] > figures->loads[0] || figures->loads[i] < figures->loads[0]) {
            return true;
        }
    }
    return false;
}

static void print_figures(struct buf *out, const struct bench_result *result) {
    struct figures *figures = arena_calloc(out->arena, 1, sizeof(*figures));
    if (!figures) {
        out->failed = true;
        return;
    }
    figures->out = out;
    figures->result = result;
    figures->open = result->settings->options.rate != NULL;
    collect_figures(figures);
    if (figures->n == 0) {
        return;
    }
    buf_add_str(out, STR("<section class=\"charts\">\n"));
    if (has_sweep(figures)) {
        print_throughput(figures);
        print_latency(figures);
    }
    print_percentiles(figures);
    print_distributions(figures);
    buf_add_str(out, STR("</section>\n"));
}

/* ---- the page -------------------------------------------------------------------------------- */

static void add_markup(struct buf *out, const char *markup) {
    buf_add_str(out, str_of(markup));
}

static void add_text(struct buf *out, const char *words) {
    bench_xml_print(out, str_of(words));
}

/* Escapes the output of a plain-text printer. */
static void print_escaped(struct buf *out, const struct bench_result *result,
                          void (*print)(struct buf *, const struct bench_result *)) {
    struct buf plain;
    buf_init(&plain, out->arena, 256);
    print(&plain, result);
    bench_xml_print(out, buf_str(&plain));
    out->failed = out->failed || plain.failed;
}

static void print_title(struct buf *out, const struct bench_result *result) {
    const struct bench_options *options = &result->settings->options;
    if (options->title) {
        add_text(out, options->title);
        return;
    }
    add_text(out, options->model ? options->model : options->url);
    add_markup(out, " under load");
}

/* ---- the top --------------------------------------------------------------------------------- */

/* "2026-01-31 12:00 UTC" */
static void print_started(struct buf *out, const struct bench_result *result) {
    struct buf text_of;
    buf_init(&text_of, out->arena, 32);
    bench_time_print(&text_of, result->started_s);
    if (text_of.len >= 16) {
        buf_printf(out, "%.10s %.5s UTC", text_of.data, text_of.data + 11);
    }
}

static void print_head(struct buf *out, const struct bench_result *result) {
    add_markup(
        out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
    print_title(out, result);
    add_markup(out, "</title>\n<style>\n");
    add_markup(out, page_style);
    add_markup(out, "</style>\n</head>\n<body>\n<main>\n<header>\n<h1>");
    print_title(out, result);
    add_markup(out, "</h1>\n<p class=\"soft\">");
    add_text(out, result->call->url);
    add_markup(out, " · ");
    print_escaped(out, result, bench_request_print);
    add_markup(out, " · ");
    print_escaped(out, result, print_started);
    add_markup(out, "</p>\n</header>\n");
}

static void print_tile(struct buf *out, const char *class, const char *value, const char *unit,
                       const char *about) {
    buf_printf(out, "<div class=\"tile\"><b class=\"%s\">", class);
    add_text(out, value);
    add_markup(out, " <span class=\"unit\">");
    add_text(out, unit);
    add_markup(out, "</span></b><span>");
    add_text(out, about);
    add_markup(out, "</span></div>\n");
}

static uint64_t count_failures(const struct bench_result *result, uint64_t *n_requests) {
    uint64_t n_failed = 0;
    *n_requests = 0;
    for (size_t i = 0; i < result->n_steps; i++) {
        n_failed += result->steps[i]->stats.n_failed;
        *n_requests += bench_n_requests(result->steps[i]);
    }
    return n_failed;
}

static void print_best_tiles(struct buf *out, const struct bench_result *result) {
    const struct bench_step_result *best = bench_best_step(result),
                                   *enough = bench_knee_step(result);
    char value[BENCH_TEXT_BYTES], name[BENCH_TEXT_BYTES], p99[BENCH_TEXT_BYTES];
    if (!best) {
        print_tile(out, "bad", "–", "", "no step qualifies");
        return;
    }
    struct str at =
        arena_printf(out->arena, "the best rate, at %s", bench_text_step(&best->step, name));
    print_tile(out, "", bench_text_number(bench_rate(best), value), "requests/s",
               at.ptr ? at.ptr : "");
    at = arena_printf(out->arena, "99\u00a0%% took at most this (p99), at %s", name);
    print_tile(out, "", bench_text_ms(bench_p99_ns(best), value), "ms", at.ptr ? at.ptr : "");
    if (enough) {
        at = arena_printf(out->arena, "of that rate already at %s, 99\u00a0%% within %s ms",
                          bench_text_step(&enough->step, name),
                          bench_text_ms(bench_p99_ns(enough), p99));
        print_tile(out, "", bench_text_percent(bench_rate(enough) / bench_rate(best), value), "",
                   at.ptr ? at.ptr : "");
        return;
    }
    at = arena_printf(out->arena, "half took at most this (p50), at %s", name);
    print_tile(out, "", bench_text_ms(bench_histogram_quantile(&best->stats.latency, 0.5), value),
               "ms", at.ptr ? at.ptr : "");
}

static void print_tiles(struct buf *out, const struct bench_result *result) {
    char value[BENCH_TEXT_BYTES], of[BENCH_TEXT_BYTES];
    uint64_t n_requests, n_failed = count_failures(result, &n_requests);
    struct str about = arena_printf(out->arena, "of %s request%s, all steps",
                                    bench_text_count(n_requests, of), plural_s(n_requests));
    add_markup(out, "<section class=\"tiles\">\n");
    print_best_tiles(out, result);
    print_tile(out, n_failed > 0 ? "bad" : "good", bench_text_count(n_failed, value),
               n_failed == 1 ? "error" : "errors", about.ptr ? about.ptr : "");
    add_markup(out, "</section>\n");
}

static void print_notes(struct buf *out, const struct bench_result *result) {
    for (size_t i = 0;; i++) {
        struct buf note;
        buf_init(&note, out->arena, 256);
        if (!bench_note_print(&note, result, i)) {
            add_markup(out, i > 0 ? "</ul>\n" : "");
            return;
        }
        add_markup(out, i == 0 ? "<ul class=\"notes\">\n<li>" : "<li>");
        bench_xml_print(out, buf_str(&note));
        add_markup(out, "</li>\n");
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_number(struct buf *out, const char *value) {
    buf_printf(out, "<td>%s</td>", value);
}

static void print_spark(struct buf *out, const struct bench_step_result *step, double hue) {
    double rates[BENCH_MAX_SAMPLES];
    struct bench_sample before = {0};
    for (size_t i = 0; i < step->n_samples; i++) {
        const struct bench_sample *now = &step->samples[i];
        double span = (double)(now->at_ns - before.at_ns);
        rates[i] = span > 0 ? (double)(now->n_answered - before.n_answered) / span : 0;
        before = *now;
    }
    add_markup(out, "<td>");
    bench_spark_print(out, "requests/s over time", rates, step->n_samples, hue);
    add_markup(out, "</td>");
}

static void print_row(struct buf *out, const struct bench_result *result, size_t index) {
    static const double quantiles[] = {0.5, 0.9, 0.95, 0.99, 0.999, 1};
    const struct bench_step_result *step = result->steps[index];
    const struct bench_histogram *latency = &step->stats.latency;
    bool answered = bench_histogram_total(latency) > 0;
    char value[BENCH_TEXT_BYTES];
    add_markup(out, step == bench_best_step(result) ? "<tr class=\"best\">" : "<tr>");
    print_number(out, step->step.rate > 0 ? bench_text_number(step->step.rate, value)
                                          : bench_text_count(step->step.concurrency, value));
    print_number(out, bench_text_number(bench_rate(step), value));
    if (result->call->batch > 1) {
        double rate = bench_rate(step) * (double)result->call->batch;
        print_number(out, bench_text_number(rate, value));
    }
    for (size_t i = 0; i < sizeof(quantiles) / sizeof(*quantiles); i++) {
        uint64_t ns = bench_histogram_quantile(latency, quantiles[i]);
        print_number(out, answered ? bench_text_ms(ns, value) : "–");
    }
    buf_printf(out, "<td%s>%s</td>", step->stats.n_failed > 0 ? " class=\"bad\"" : "",
               bench_text_count(step->stats.n_failed, value));
    if (!result->call->ping) {
        print_number(out, bench_text_number(bench_byte_rate(step) / 1e6, value));
    }
    print_spark(out, step, step_hue(index, result->n_steps));
    add_markup(out, "</tr>\n");
}

static void print_table(struct buf *out, const struct bench_result *result) {
    add_markup(out, "<h2>Every step</h2>\n<div class=\"card\"><table>\n<thead><tr>");
    add_markup(out, result->settings->options.rate ? "<th>requests/s wanted</th><th>answered</th>"
                                                   : "<th>concurrency</th><th>requests/s</th>");
    if (result->call->batch > 1) {
        add_markup(out, "<th>inferences/s</th>");
    }
    add_markup(out, "<th>p50 ms</th><th>p90</th><th>p95</th><th>p99</th><th>p99.9</th><th>max</th>"
                    "<th>errors</th>");
    add_markup(out, result->call->ping ? "" : "<th>MB/s</th>");
    add_markup(out, "<th>over time</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < result->n_steps; i++) {
        print_row(out, result, i);
    }
    add_markup(out, "</tbody>\n</table></div>\n");
}

/* ---- settings of the run --------------------------------------------------------------------- */

static void print_fact(struct buf *out, const char *name, const char *value) {
    if (value && *value) {
        add_markup(out, "<dt>");
        add_text(out, name);
        add_markup(out, "</dt><dd>");
        add_text(out, value);
        add_markup(out, "</dd>\n");
    }
}

static void print_joined(struct buf *out, const char *name, const char *first, const char *second) {
    struct str both = arena_printf(out->arena, "%s%s%s", first ? first : "",
                                   second && *second ? " " : "", second ? second : "");
    print_fact(out, name, both.ptr);
}

static void print_inputs(struct buf *out, const struct bench_call *call) {
    char shape[SHAPE_TEXT_BYTES], size[BENCH_TEXT_BYTES];
    for (size_t i = 0; i < call->n_inputs; i++) {
        const struct tensor *input = &call->inputs[i];
        struct str value =
            arena_printf(out->arena, "%.*s: %s %s, %s bytes", STR_ARG(input->name),
                         datatype_name(input->datatype), shape_print(input->shape, shape),
                         bench_text_count(input->n_bytes, size));
        print_fact(out, i == 0 ? "inputs" : " ", value.ptr);
    }
}

static void print_generator(struct buf *out, const struct bench_result *result) {
    unsigned n_threads = 0;
    double busy = 0;
    char percent[BENCH_TEXT_BYTES];
    for (size_t i = 0; i < result->n_steps; i++) {
        const struct bench_step_result *step = result->steps[i];
        n_threads = step->n_threads > n_threads ? step->n_threads : n_threads;
        busy = bench_cpu_share(step) > busy ? bench_cpu_share(step) : busy;
    }
    struct str value =
        arena_printf(out->arena,
                     "sluice %s, at most %u thread%s, busy up to %s of the time, on "
                     "a machine with %u CPU%s for it",
                     SLUICE_VERSION, n_threads, plural_s(n_threads),
                     bench_text_percent(busy, percent), result->n_cpus, plural_s(result->n_cpus));
    print_fact(out, "load from", value.ptr);
}

static void print_facts(struct buf *out, const struct bench_result *result) {
    const struct bench_call *call = result->call;
    char first[BENCH_TEXT_BYTES];
    add_markup(out, "<h2>What was run</h2>\n<div class=\"card\"><dl>\n");
    print_joined(out, "model", result->settings->options.model,
                 *call->model_version
                     ? arena_printf(out->arena, "version %s", call->model_version).ptr
                     : "");
    print_fact(out, "platform", call->platform);
    print_joined(out, "server", call->server, call->server_version);
    print_fact(out, "address", call->url);
    add_markup(out, "<dt>request</dt><dd>");
    print_escaped(out, result, bench_request_print);
    add_markup(out, "</dd>\n");
    print_inputs(out, call);
    add_markup(out, "<dt>load</dt><dd>");
    print_escaped(out, result, bench_plan_print);
    add_markup(out, "</dd>\n");
    print_fact(out, "first request", bench_text_span(result->first_ns, first));
    print_generator(out, result);
    add_markup(out, "<dt>command</dt><dd><code>");
    bench_xml_print(out, result->settings->command_line);
    add_markup(out, "</code></dd>\n</dl></div>\n");
}

static void print_reading(struct buf *out, const struct bench_result *result) {
    add_markup(out,
               "<h2>How to read this</h2>\n<p class=\"soft\">p99 of 12 ms: 99 of 100 requests took "
               "12 ms or "
               "less. ");
    add_markup(
        out,
        result->settings->options.rate
            ? "Latency counts from the time at which a request should have begun, so that a "
              "server that falls behind can't hide it. "
            : "Each connection sends its next request when the last one was answered, so a slow "
              "server gets fewer requests; with --rate it does not. ");
    add_markup(out,
               "Requests of the warm-up are not counted. MB/s counts the bytes of requests and "
               "answers, without headers. "
               "Percentiles are exact to 0.4\u00a0%.</p>\n");
}

void bench_html_print(struct buf *out, const struct bench_result *result) {
    print_head(out, result);
    print_tiles(out, result);
    print_notes(out, result);
    print_figures(out, result);
    print_table(out, result);
    print_facts(out, result);
    print_reading(out, result);
    add_markup(out, "</main>\n</body>\n</html>\n");
}
