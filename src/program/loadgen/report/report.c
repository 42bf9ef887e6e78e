/* The table. Columns are as wide as what is in them, and numbers end below each other. */
#include "program/loadgen/report/report.h"

#include <stdio.h>
#include <string.h>

#include "program/loadgen/report/text.h"

enum { MAX_COLUMNS = 14, GAP = 2 };

/* A cell of the table: writes column `column` of a step. */
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
    buf_printf(out, "\n  first request, with connecting: %s\n\n",
               bench_text_span(result->first_ns, text));
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
        buf_add_str(out, i == 0 ? STR("\n  ") : STR("  "));
        if (!bench_note_print(out, result, i)) {
            out->len = before;
            return;
        }
        buf_add_char(out, '\n');
    }
}
