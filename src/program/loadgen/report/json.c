/* The JSON of a run. Members are only added; "format" is incremented by changes that break
 * readers. */
#include "program/loadgen/report/report.h"

#include <inttypes.h>
#include <time.h>

#include "core/base/utf8.h"
#include "core/tensor/datatype.h"

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

static void new_line(struct buf *out, unsigned indent) {
    if (out->len > 0 && out->data[out->len - 1] != '{' && out->data[out->len - 1] != '[') {
        buf_add_char(out, ',');
    }
    buf_add_char(out, '\n');
    for (unsigned i = 0; i < indent; i++) {
        buf_add_char(out, ' ');
    }
}

static void print_key(struct buf *out, unsigned indent, const char *name) {
    new_line(out, indent);
    buf_printf(out, "\"%s\": ", name);
}

/* Arguments need not be UTF-8; JSON must. */
static void add_string(struct buf *out, struct str text) {
    struct str copy = utf8_is_valid(text.ptr, text.len) ? text : arena_dup(out->arena, text);
    char *bytes = copy.ptr == text.ptr ? NULL : (char *)(uintptr_t)copy.ptr;
    for (size_t i = 0; bytes && i < copy.len; i++) {
        bytes[i] = (unsigned char)bytes[i] < 0x80 ? bytes[i] : '?';
    }
    buf_add_json_string(out, copy);
}

static void add_text(struct buf *out, unsigned indent, const char *name, const char *text) {
    print_key(out, indent, name);
    if (text) {
        add_string(out, str_of(text));
    } else {
        buf_add_str(out, STR("null"));
    }
}

static void add_count(struct buf *out, unsigned indent, const char *name, uint64_t value) {
    print_key(out, indent, name);
    buf_add_u64(out, value);
}

static void add_number(struct buf *out, unsigned indent, const char *name, double value) {
    print_key(out, indent, name);
    buf_printf(out, "%.9g", value);
}

static void add_bool(struct buf *out, unsigned indent, const char *name, bool value) {
    print_key(out, indent, name);
    buf_add_str(out, value ? STR("true") : STR("false"));
}

static void print_end(struct buf *out, unsigned indent, char bracket) {
    buf_add_char(out, '\n');
    for (unsigned i = 0; i < indent; i++) {
        buf_add_char(out, ' ');
    }
    buf_add_char(out, bracket);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void print_latency(struct buf *out, const struct bench_histogram *latency) {
    static const struct {
        const char *name;
        double quantile;
    } rows[] = {{"p50", 0.5},  {"p75", 0.75},    {"p90", 0.9},      {"p95", 0.95},
                {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}};
    if (bench_histogram_total(latency) == 0) {
        buf_add_str(out, STR("null"));
        return;
    }
    buf_add_char(out, '{');
    add_number(out, 8, "min", (double)latency->min_ns / 1e6);
    add_number(out, 8, "mean", bench_histogram_mean(latency) / 1e6);
    add_number(out, 8, "deviation", bench_histogram_deviation(latency) / 1e6);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        add_number(out, 8, rows[i].name,
                   (double)bench_histogram_quantile(latency, rows[i].quantile) / 1e6);
    }
    add_number(out, 8, "max", (double)latency->max_ns / 1e6);
    print_end(out, 6, '}');
}

static void print_failures(struct buf *out, const struct bench_stats *stats) {
    buf_add_char(out, '[');
    for (size_t i = 0; i < stats->n_failures; i++) {
        const struct bench_failure *failure = &stats->failures[i];
        struct buf reason;
        buf_init(&reason, out->arena, 32);
        bench_failure_print(&reason, failure);
        buf_add_char(&reason, '\0');
        new_line(out, 8);
        buf_add_char(out, '{');
        add_text(out, 10, "reason", reason.failed ? "" : reason.data);
        add_count(out, 10, "count", failure->count);
        add_text(out, 10, "first", failure->first);
        print_end(out, 8, '}');
    }
    if (stats->n_failures > 0) {
        print_end(out, 6, ']');
    } else {
        buf_add_char(out, ']');
    }
}

static void print_histogram(struct buf *out, const struct bench_histogram *histogram) {
    struct bench_bucket bucket;
    const char *comma = "";
    buf_add_char(out, '[');
    for (unsigned i = 0; bench_histogram_next(histogram, &i, &bucket); comma = ",") {
        buf_printf(out, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", comma, bucket.from_ns,
                   bucket.to_ns, bucket.count);
    }
    buf_add_char(out, ']');
}

static void print_timeline(struct buf *out, const struct bench_step_result *step) {
    buf_add_char(out, '[');
    for (size_t i = 0; i < step->n_samples; i++) {
        const struct bench_sample *sample = &step->samples[i];
        buf_printf(out, "%s[%.3f,%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "",
                   (double)sample->at_ns / 1e9, sample->n_answered, sample->n_refused);
    }
    buf_add_char(out, ']');
}

static void print_generator(struct buf *out, const struct bench_step_result *step) {
    const struct bench_histogram *lag = &step->stats.lag;
    buf_add_char(out, '{');
    add_count(out, 8, "threads", step->n_threads);
    add_number(out, 8, "busy", bench_cpu_share(step));
    if (bench_histogram_total(lag) > 0) {
        add_number(out, 8, "lag_p99_ms", (double)bench_histogram_quantile(lag, 0.99) / 1e6);
        add_number(out, 8, "lag_max_ms", (double)lag->max_ns / 1e6);
    }
    print_end(out, 6, '}');
}

static void print_step(struct buf *out, const struct bench_result *result,
                       const struct bench_step_result *step) {
    new_line(out, 4);
    buf_add_char(out, '{');
    add_count(out, 6, "concurrency", step->step.concurrency);
    print_key(out, 6, "rate");
    if (step->step.rate > 0) {
        buf_printf(out, "%.9g", step->step.rate);
    } else {
        buf_add_str(out, STR("null"));
    }
    add_number(out, 6, "seconds", (double)step->window_ns / 1e9);
    add_count(out, 6, "requests", bench_n_requests(step));
    add_count(out, 6, "succeeded", bench_histogram_total(&step->stats.latency));
    add_count(out, 6, "failed", step->stats.n_failed);
    add_count(out, 6, "not_sent", step->stats.n_unsent);
    add_count(out, 6, "abandoned", step->stats.n_abandoned);
    add_number(out, 6, "requests_per_second", bench_rate(step));
    add_number(out, 6, "inferences_per_second",
               result->call->ping ? 0 : bench_rate(step) * (double)result->call->batch);
    add_number(out, 6, "payload_bytes_per_second", bench_byte_rate(step));
    add_number(out, 6, "unsteadiness", bench_rate_variation(step));
    print_key(out, 6, "latency_ms");
    print_latency(out, &step->stats.latency);
    print_key(out, 6, "errors");
    print_failures(out, &step->stats);
    print_key(out, 6, "generator");
    print_generator(out, step);
    print_key(out, 6, "timeline"); /* seconds, answers, failures */
    print_timeline(out, step);
    print_key(out, 6, "histogram_ns"); /* from, to, count */
    print_histogram(out, &step->stats.latency);
    print_end(out, 4, '}');
}

/* ---- the run --------------------------------------------------------------------------------- */

static void print_inputs(struct buf *out, const struct bench_call *call) {
    buf_add_char(out, '[');
    for (size_t i = 0; i < call->n_inputs; i++) {
        const struct tensor *input = &call->inputs[i];
        new_line(out, 6);
        buf_add_char(out, '{');
        print_key(out, 8, "name");
        add_string(out, input->name);
        add_text(out, 8, "datatype", datatype_name(input->datatype));
        print_key(out, 8, "shape");
        buf_add_char(out, '[');
        for (size_t k = 0; k < input->shape.rank; k++) {
            buf_printf(out, "%s%" PRId64, k > 0 ? "," : "", input->shape.dims[k]);
        }
        buf_add_char(out, ']');
        add_count(out, 8, "bytes", input->n_bytes);
        print_end(out, 6, '}');
    }
    if (call->n_inputs > 0) {
        print_end(out, 4, ']');
    } else {
        buf_add_char(out, ']');
    }
}

static void print_request(struct buf *out, const struct bench_result *result) {
    static const char *const forms[] = {"binary", "json", "raw"};
    const struct bench_call *call = result->call;
    buf_add_char(out, '{');
    add_text(out, 4, "kind", call->ping ? "ping" : "infer");
    add_text(out, 4, "protocol", call->protocol->name);
    add_text(out, 4, "form",
             call->ping || result->settings->mip ? NULL : forms[result->settings->options.form]);
    add_count(out, 4, "batch", call->batch);
    add_count(out, 4, "bytes", call->n_bytes);
    print_key(out, 4, "inputs");
    print_inputs(out, call);
    print_end(out, 2, '}');
}

static void print_load(struct buf *out, const struct bench_options *options) {
    static const char *const arrivals[] = {"constant", "poisson"};
    buf_add_char(out, '{');
    add_text(out, 4, "loop", options->rate ? "open" : "closed");
    add_text(out, 4, "arrival", options->rate ? arrivals[options->arrival] : NULL);
    add_number(out, 4, "duration_s", (double)options->duration_ns / 1e9);
    add_count(out, 4, "requests", options->n_requests);
    add_number(out, 4, "warm_up_s", (double)options->warm_up_ns / 1e9);
    add_number(out, 4, "timeout_s", (double)options->timeout_ns / 1e9);
    add_bool(out, 4, "reconnect", options->reconnect);
    add_count(out, 4, "seed", options->seed);
    print_end(out, 2, '}');
}

void bench_json_print(struct buf *out, const struct bench_result *result) {
    const struct bench_call *call = result->call;
    struct buf text;
    buf_init(&text, out->arena, 64);
    bench_time_print(&text, result->started_s);
    buf_add_char(&text, '\0');
    buf_add_char(out, '{');
    add_count(out, 2, "format", FORMAT);
    add_text(out, 2, "sluice", SLUICE_VERSION);
    add_text(out, 2, "started", text.failed ? "" : text.data);
    print_key(out, 2, "command");
    add_string(out, result->settings->command_line);
    add_text(out, 2, "url", call->url);
    add_text(out, 2, "model", result->settings->options.model);
    add_text(out, 2, "model_version", call->model_version);
    add_text(out, 2, "platform", call->platform);
    add_text(out, 2, "server", call->server);
    add_text(out, 2, "server_version", call->server_version);
    print_key(out, 2, "request");
    print_request(out, result);
    print_key(out, 2, "load");
    print_load(out, &result->settings->options);
    add_number(out, 2, "first_request_ms", (double)result->first_ns / 1e6);
    add_bool(out, 2, "interrupted", result->interrupted);
    print_key(out, 2, "steps");
    buf_add_char(out, '[');
    for (size_t i = 0; i < result->n_steps; i++) {
        print_step(out, result, result->steps[i]);
    }
    print_end(out, 2, ']');
    print_end(out, 0, '}');
    buf_add_char(out, '\n');
}
