/* Which curves the page shows, and from which numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "program/loadgen/report/chart.h"
#include "program/loadgen/report/html.h"
#include "program/loadgen/report/text.h"

enum {
    CURVE_POINTS = 121,
    MAX_BINS = 72,
    N_PERCENTILES = 4,
    MAX_NINES = 6,
};

struct figures {
    struct buf *out;
    const struct bench_result *result;
    const struct bench_step_result *steps[BENCH_MAX_STEPS]; /* those with answers */
    double hues[BENCH_MAX_STEPS];
    char names[BENCH_MAX_STEPS][BENCH_TEXT_BYTES];
    double loads[BENCH_MAX_STEPS];
    struct bench_mark marks[BENCH_MAX_STEPS]; /* of the loads */
    size_t n;
    bool open; /* the load is a rate */
};

double bench_step_hue(size_t index, size_t n) {
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
    /* The ends are steps, not round numbers. */
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

/* The axis of percentiles: each further nine is as wide as the one before. */
static double count_nines(double quantile) {
    return -log10(1 - quantile);
}

/* As many nines as there are requests to tell them from each other. */
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

/* The heights of a step's distribution over equal parts of a logarithmic axis. */
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
    /* No bin is narrower than three buckets of the histogram, or they would come and go. */
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

/* ---- all of them ----------------------------------------------------------------------------- */

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
        figures->hues[k] = bench_step_hue(i, result->n_steps);
        figures->loads[k] = figures->open ? step->step.rate : step->step.concurrency;
        figures->marks[k].at = figures->loads[k];
        snprintf(figures->marks[k].text, sizeof(figures->marks[k].text), "%.15s",
                 figures->open ? bench_text_number(step->step.rate, number)
                               : bench_text_count(step->step.concurrency, number));
        bench_text_step(&step->step, figures->names[k]);
        figures->n++;
    }
}

/* Is there more than one load to draw a line through? */
static bool has_sweep(const struct figures *figures) {
    for (size_t i = 1; i < figures->n; i++) {
        if (figures->loads[i] > figures->loads[0] || figures->loads[i] < figures->loads[0]) {
            return true;
        }
    }
    return false;
}

void bench_figures_print(struct buf *out, const struct bench_result *result) {
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
