/* The JSON of a run, and the page that draws it (bench_page.html). Members are only added; "format"
 * is incremented by changes that break readers. */
#include "program/loadgen/report/report.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "core/base/json_writer.h"
#include "core/base/utf8.h"
#include "core/tensor/datatype.h"
#include "program/loadgen/bench_page.h"

enum { FORMAT = 1 };

void bench_time_print(struct buf *out, int64_t seconds) {
    time_t time = (time_t)seconds;
    struct tm tm;
    char text[64];
    if (gmtime_r(&time, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) > 0) {
        buf_add_str(out, str_of(text));
    }
}

/* ---- members --------------------------------------------------------------------------------- */

enum { DIGITS = 9 };

/* Arguments need not be UTF-8; JSON must. */
static void add_bytes(struct json_writer *json, const char *name, struct str text) {
    struct str copy = utf8_is_valid(text.ptr, text.len) ? text : arena_dup(json->out->arena, text);
    char *bytes = copy.ptr == text.ptr ? NULL : (char *)(uintptr_t)copy.ptr;
    for (size_t i = 0; bytes && i < copy.len; i++) {
        bytes[i] = (unsigned char)bytes[i] < 0x80 ? bytes[i] : '?';
    }
    json_write_string(json, name, copy);
}

static void add_text(struct json_writer *json, const char *name, const char *text) {
    if (text) {
        add_bytes(json, name, str_of(text));
    } else {
        json_write_null(json, name);
    }
}

/* A sentence that the text report has, too. */
static void add_printed(struct json_writer *json, const char *name,
                        const struct bench_result *result,
                        void (*print)(struct buf *, const struct bench_result *)) {
    struct buf text;
    buf_init(&text, json->out->arena, 64);
    print(&text, result);
    add_bytes(json, name, buf_str(&text));
}

static void add_number(struct json_writer *json, const char *name, double value) {
    json_write_digits(json, name, value, DIGITS);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void add_latency(struct json_writer *json, const struct bench_histogram *latency) {
    static const struct {
        const char *name;
        double quantile;
    } rows[] = {{"p50", 0.5},  {"p75", 0.75},    {"p90", 0.9},      {"p95", 0.95},
                {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}};
    if (bench_histogram_total(latency) == 0) {
        json_write_null(json, "latency_ms");
        return;
    }
    json_write_open(json, "latency_ms", '{');
    add_number(json, "min", (double)latency->min_ns / 1e6);
    add_number(json, "mean", bench_histogram_mean(latency) / 1e6);
    add_number(json, "deviation", bench_histogram_deviation(latency) / 1e6);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        add_number(json, rows[i].name,
                   (double)bench_histogram_quantile(latency, rows[i].quantile) / 1e6);
    }
    add_number(json, "max", (double)latency->max_ns / 1e6);
    json_write_close(json, '}');
}

static void add_failures(struct json_writer *json, const struct bench_stats *stats) {
    json_write_open(json, "errors", '[');
    for (size_t i = 0; i < stats->n_failures; i++) {
        const struct bench_failure *failure = &stats->failures[i];
        struct buf reason;
        buf_init(&reason, json->out->arena, 32);
        bench_failure_print(&reason, failure);
        buf_add_char(&reason, '\0');
        json_write_open(json, JSON_ELEMENT, '{');
        add_text(json, "reason", reason.data);
        json_write_u64(json, "count", failure->count);
        add_text(json, "first", failure->first);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

/* An array in one line, for the many small ones. */
static void open_line(struct json_writer *json, const char *name) {
    json_write_open(json, name, '[');
    json->layout = JSON_COMPACT;
}

static void close_line(struct json_writer *json) {
    json_write_close(json, ']');
    json->layout = JSON_LINES;
}

static void add_histogram(struct json_writer *json, const struct bench_histogram *histogram) {
    struct bench_bucket bucket;
    open_line(json, "histogram_ns"); /* from, to, count */
    for (unsigned i = 0; bench_histogram_next(histogram, &i, &bucket);) {
        json_write_open(json, JSON_ELEMENT, '[');
        json_write_u64(json, JSON_ELEMENT, bucket.from_ns);
        json_write_u64(json, JSON_ELEMENT, bucket.to_ns);
        json_write_u64(json, JSON_ELEMENT, bucket.count);
        json_write_close(json, ']');
    }
    close_line(json);
}

static void add_timeline(struct json_writer *json, const struct bench_step_result *step) {
    open_line(json, "timeline"); /* seconds, answers, failures */
    for (size_t i = 0; i < step->n_samples; i++) {
        const struct bench_sample *sample = &step->samples[i];
        json_write_open(json, JSON_ELEMENT, '[');
        json_write_decimals(json, JSON_ELEMENT, (double)sample->at_ns / 1e9, 3);
        json_write_u64(json, JSON_ELEMENT, sample->n_answered);
        json_write_u64(json, JSON_ELEMENT, sample->n_refused);
        json_write_close(json, ']');
    }
    close_line(json);
}

static void add_generator(struct json_writer *json, const struct bench_step_result *step) {
    const struct bench_histogram *lag = &step->stats.lag;
    json_write_open(json, "generator", '{');
    json_write_u64(json, "threads", step->n_threads);
    add_number(json, "busy", bench_cpu_share(step));
    if (bench_histogram_total(lag) > 0) {
        add_number(json, "lag_p99_ms", (double)bench_histogram_quantile(lag, 0.99) / 1e6);
        add_number(json, "lag_max_ms", (double)lag->max_ns / 1e6);
    }
    json_write_close(json, '}');
}

static void add_step(struct json_writer *json, const struct bench_result *result,
                     const struct bench_step_result *step) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_u64(json, "concurrency", step->step.concurrency);
    if (step->step.rate > 0) {
        add_number(json, "rate", step->step.rate);
    } else {
        json_write_null(json, "rate");
    }
    add_number(json, "seconds", (double)step->window_ns / 1e9);
    json_write_u64(json, "requests", bench_n_requests(step));
    json_write_u64(json, "succeeded", bench_histogram_total(&step->stats.latency));
    json_write_u64(json, "failed", step->stats.n_failed);
    json_write_u64(json, "not_sent", step->stats.n_unsent);
    json_write_u64(json, "abandoned", step->stats.n_abandoned);
    add_number(json, "requests_per_second", bench_rate(step));
    add_number(json, "inferences_per_second",
               result->call->ping ? 0 : bench_rate(step) * (double)result->call->batch);
    add_number(json, "payload_bytes_per_second", bench_byte_rate(step));
    add_number(json, "unsteadiness", bench_rate_variation(step));
    add_latency(json, &step->stats.latency);
    add_failures(json, &step->stats);
    add_generator(json, step);
    add_timeline(json, step);
    add_histogram(json, &step->stats.latency);
    json_write_close(json, '}');
}

/* ---- the run --------------------------------------------------------------------------------- */

static void add_inputs(struct json_writer *json, const struct bench_call *call) {
    json_write_open(json, "inputs", '[');
    for (size_t i = 0; i < call->n_inputs; i++) {
        const struct tensor *input = &call->inputs[i];
        json_write_open(json, JSON_ELEMENT, '{');
        add_bytes(json, "name", input->name);
        add_text(json, "datatype", datatype_name(input->datatype));
        open_line(json, "shape");
        for (size_t k = 0; k < input->shape.rank; k++) {
            json_write_i64(json, JSON_ELEMENT, input->shape.dims[k]);
        }
        close_line(json);
        json_write_u64(json, "bytes", input->n_bytes);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void add_request(struct json_writer *json, const struct bench_result *result) {
    static const char *const forms[] = {"binary", "json", "raw"};
    const struct bench_call *call = result->call;
    json_write_open(json, "request", '{');
    add_text(json, "kind", call->ping ? "ping" : "infer");
    add_text(json, "protocol", call->protocol->name);
    add_text(json, "form",
             call->ping || result->settings->mip ? NULL : forms[result->settings->options.form]);
    json_write_u64(json, "batch", call->batch);
    json_write_u64(json, "bytes", call->n_bytes);
    add_printed(json, "text", result, bench_request_print);
    add_inputs(json, call);
    json_write_close(json, '}');
}

static void add_load(struct json_writer *json, const struct bench_result *result) {
    static const char *const arrivals[] = {"constant", "poisson"};
    const struct bench_options *options = &result->settings->options;
    json_write_open(json, "load", '{');
    add_text(json, "loop", options->rate ? "open" : "closed");
    add_text(json, "arrival", options->rate ? arrivals[options->arrival] : NULL);
    add_number(json, "duration_s", (double)options->duration_ns / 1e9);
    json_write_u64(json, "requests", options->n_requests);
    add_number(json, "warm_up_s", (double)options->warm_up_ns / 1e9);
    add_number(json, "timeout_s", (double)options->timeout_ns / 1e9);
    json_write_bool(json, "reconnect", options->reconnect);
    json_write_u64(json, "seed", options->seed);
    add_printed(json, "text", result, bench_plan_print);
    json_write_close(json, '}');
}

static void add_notes(struct json_writer *json, const struct bench_result *result) {
    json_write_open(json, "notes", '[');
    for (size_t i = 0;; i++) {
        struct buf note;
        buf_init(&note, json->out->arena, 256);
        if (!bench_note_print(&note, result, i)) {
            break;
        }
        add_bytes(json, JSON_ELEMENT, buf_str(&note));
    }
    json_write_close(json, ']');
}

/* The index of a step; null: there is none. */
static void add_index(struct json_writer *json, const char *name, const struct bench_result *result,
                      const struct bench_step_result *step) {
    for (size_t i = 0; i < result->n_steps; i++) {
        if (result->steps[i] == step) {
            json_write_u64(json, name, i);
            return;
        }
    }
    json_write_null(json, name);
}

void bench_json_print(struct buf *out, const struct bench_result *result) {
    const struct bench_call *call = result->call;
    struct json_writer all = {.out = out, .layout = JSON_LINES}, *json = &all;
    struct buf text;
    buf_init(&text, out->arena, 64);
    bench_time_print(&text, result->started_s);
    buf_add_char(&text, '\0');
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_u64(json, "format", FORMAT);
    add_text(json, "sluice", SLUICE_VERSION);
    add_text(json, "started", text.data);
    add_bytes(json, "command", result->settings->command_line);
    add_text(json, "title", result->settings->options.title);
    add_text(json, "url", call->url);
    add_text(json, "model", result->settings->options.model);
    add_text(json, "model_version", call->model_version);
    add_text(json, "platform", call->platform);
    add_text(json, "server", call->server);
    add_text(json, "server_version", call->server_version);
    add_request(json, result);
    add_load(json, result);
    add_number(json, "first_request_ms", (double)result->first_ns / 1e6);
    json_write_bool(json, "interrupted", result->interrupted);
    json_write_u64(json, "cpus", result->n_cpus);
    add_notes(json, result);
    add_index(json, "best_step", result, bench_best_step(result));
    add_index(json, "knee_step", result, bench_knee_step(result));
    json_write_open(json, "steps", '[');
    for (size_t i = 0; i < result->n_steps; i++) {
        add_step(json, result, result->steps[i]);
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
    buf_add_char(out, '\n');
}

/* ---- the page -------------------------------------------------------------------------------- */

void bench_html_print(struct buf *out, const struct bench_result *result) {
    static const char place[] = "\"@run@\"";
    struct str page = bench_page(), rest;
    const char *at = memmem(page.ptr, page.len, place, sizeof(place) - 1);
    struct buf json;
    buf_init(&json, out->arena, 65536);
    bench_json_print(&json, result);
    assert(at);
    rest = str_make(at + sizeof(place) - 1, (size_t)(page.ptr + page.len - at) - sizeof(place) + 1);
    buf_add_str(out, str_make(page.ptr, (size_t)(at - page.ptr)));
    for (size_t i = 0; i < json.len; i++) {
        if (json.data[i] == '<') { /* only in strings; it could end the script */
            buf_add_str(out, STR("\\u003c"));
        } else {
            buf_add_char(out, json.data[i]);
        }
    }
    buf_add_str(out, rest);
}
