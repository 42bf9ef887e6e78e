/* The page, from top to bottom. */
#include "program/loadgen/report/html.h"

#include <inttypes.h>
#include <string.h>

#include "core/tensor/datatype.h"
#include "core/tensor/shape.h"
#include "program/loadgen/report/chart.h"
#include "program/loadgen/report/json.h"
#include "program/loadgen/report/report.h"
#include "program/loadgen/report/text.h"

static void add_markup(struct buf *out, const char *markup) {
    buf_add_str(out, str_of(markup));
}

static void add_text(struct buf *out, const char *words) {
    bench_xml_print(out, str_of(words));
}

/* What a printer of plain text writes, escaped. Returns: whether it wrote anything. */
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
    add_markup(out, bench_style);
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
        print_tile(out, "bad", "–", "", "no step to name");
        return;
    }
    struct str at = arena_printf(out->arena, "most, at %s", bench_text_step(&best->step, name));
    print_tile(out, "", bench_text_number(bench_rate(best), value), "requests/s",
               at.ptr ? at.ptr : "");
    at = arena_printf(out->arena, "p99 at %s", name);
    print_tile(out, "", bench_text_ms(bench_p99_ns(best), value), "ms", at.ptr ? at.ptr : "");
    if (enough) {
        at = arena_printf(out->arena, "of that already at %s, p99 %s ms",
                          bench_text_step(&enough->step, name),
                          bench_text_ms(bench_p99_ns(enough), p99));
        print_tile(out, "", bench_text_percent(bench_rate(enough) / bench_rate(best), value), "",
                   at.ptr ? at.ptr : "");
        return;
    }
    at = arena_printf(out->arena, "p50 at %s", name);
    print_tile(out, "", bench_text_ms(bench_histogram_quantile(&best->stats.latency, 0.5), value),
               "ms", at.ptr ? at.ptr : "");
}

static void print_tiles(struct buf *out, const struct bench_result *result) {
    char value[BENCH_TEXT_BYTES], of[BENCH_TEXT_BYTES];
    uint64_t n_requests, n_failed = count_failures(result, &n_requests);
    struct str about =
        arena_printf(out->arena, "of %s requests, all steps", bench_text_count(n_requests, of));
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
    print_spark(out, step, bench_step_hue(index, result->n_steps));
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

/* ---- what was run ---------------------------------------------------------------------------- */

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
    struct str value = arena_printf(out->arena,
                                    "sluice %s, at most %u thread%s, busy up to %s of the time, on "
                                    "a machine with %u CPU%s for it",
                                    SLUICE_VERSION, n_threads, n_threads == 1 ? "" : "s",
                                    bench_text_percent(busy, percent), result->n_cpus,
                                    result->n_cpus == 1 ? "" : "s");
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
              "server is also asked less; with --rate it is not. ");
    add_markup(out,
               "Requests of the warm-up are in no figure. MB/s counts the bytes of requests and "
               "answers, without their heads. "
               "Percentiles are exact to 0.4\u00a0%.</p>\n");
}

void bench_html_print(struct buf *out, const struct bench_result *result) {
    print_head(out, result);
    print_tiles(out, result);
    print_notes(out, result);
    bench_figures_print(out, result);
    print_table(out, result);
    print_facts(out, result);
    print_reading(out, result);
    add_markup(out, "</main>\n</body>\n</html>\n");
}
