/* Parsing of --trace-config. Values follow the rules of the trace extension; a file can be set only
 * here. */
#include "serve/trace/tracer.h"

#include <string.h>

#include "core/base/num.h"
#include "core/base/utf8.h"
#include "telemetry/trace/file.h"

enum { DEFAULT_RATE = 1000, MAX_BSP_VALUE = 1000000 };

static enum status error_unknown_setting(const char *item, struct error *err) {
    return error_set(err, ST_BAD_CONFIG,
                     "expected level=, rate=, count=, mode=, triton,file=, triton,log-frequency=, "
                     "opentelemetry,url= or opentelemetry,resource=, got \"%s\"",
                     item);
}

/* The level names of the reference server. */
static enum status read_level(struct str text, struct v2_trace_values *values, struct error *err) {
    static const struct {
        const char *word;
        uint32_t level;
    } rows[] = {{"off", 0},
                {"false", 0},
                {"timestamps", V2_TRACE_TIMESTAMPS},
                {"true", V2_TRACE_TIMESTAMPS},
                {"on", V2_TRACE_TIMESTAMPS},
                {"min", V2_TRACE_TIMESTAMPS},
                {"max", V2_TRACE_TIMESTAMPS},
                {"tensors", V2_TRACE_TENSORS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (str_eq_nocase(text, str_of(rows[i].word))) {
            values->level = rows[i].level ? values->level | rows[i].level : 0;
            return ST_OK;
        }
    }
    return error_set(err, ST_BAD_CONFIG, "level: expected OFF, TIMESTAMPS or TENSORS, got \"%.*s\"",
                     STR_ARG(text));
}

static enum status read_server(struct str name, struct str value, const char *item,
                               struct v2_trace_update *wanted, struct tracer_options *out,
                               struct error *err) {
    if (str_is(name, "level")) {
        return read_level(value, &wanted->values, err);
    }
    if (str_is(name, "rate")) {
        return v2_trace_parse_number(V2_TRACE_RATE, value, wanted, err);
    }
    if (str_is(name, "count")) {
        return v2_trace_parse_number(V2_TRACE_COUNT, value, wanted, err);
    }
    if (!str_is(name, "mode")) {
        return error_unknown_setting(item, err);
    }
    out->opentelemetry = str_eq_nocase(value, STR("opentelemetry"));
    return out->opentelemetry || str_eq_nocase(value, STR("triton"))
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG,
                           "mode: expected triton or opentelemetry, got \"%.*s\"", STR_ARG(value));
}

/* KEY=VALUE; the last value of a key wins. */
static enum status read_resource(struct str value, struct trace_export_options *out,
                                 struct error *err) {
    struct str key = str_cut(&value, '=');
    size_t at = 0;
    while (at < out->n_resource && !str_eq(out->resource[at].key, key)) {
        at++;
    }
    if (!value.ptr || key.len == 0 || at == TRACE_MAX_RESOURCES ||
        !utf8_is_valid(key.ptr, key.len) || !utf8_is_valid(value.ptr, value.len)) {
        return error_set(err, ST_BAD_CONFIG,
                         "resource: expected KEY=VALUE, at most %d of them, as UTF-8",
                         TRACE_MAX_RESOURCES);
    }
    out->resource[at] = (struct otlp_attribute){.key = key, .text = value};
    out->n_resource += at == out->n_resource;
    return ST_OK;
}

static enum status read_bsp(const char *name, struct str value, uint32_t *out, struct error *err) {
    uint64_t number;
    if (!num_parse_u64(value, &number) || number < OTLP_SPANS || number > MAX_BSP_VALUE) {
        return error_set(err, ST_BAD_CONFIG, "%s: expected a whole number from %d to %d", name,
                         OTLP_SPANS, MAX_BSP_VALUE);
    }
    *out = (uint32_t)number;
    return ST_OK;
}

static enum status read_opentelemetry(struct str name, struct str value, const char *item,
                                      struct trace_export_options *out, struct error *err) {
    if (str_is(name, "resource")) {
        return read_resource(value, out, err);
    }
    if (str_is(name, "bsp_max_queue_size")) {
        return read_bsp("bsp_max_queue_size", value, &out->max_queue, err);
    }
    if (str_is(name, "bsp_max_export_batch_size")) {
        return read_bsp("bsp_max_export_batch_size", value, &out->max_batch, err);
    }
    if (str_is(name, "bsp_schedule_delay")) {
        return read_bsp("bsp_schedule_delay", value, &out->delay_ms, err);
    }
    if (!str_is(name, "url")) {
        return error_unknown_setting(item, err);
    }
    out->url = value.ptr; /* the rest of the item */
    bool has_scheme = strstr(out->url, "://") != NULL;
    return str_starts_with(value, STR("http://")) || str_starts_with(value, STR("https://")) ||
                   (!has_scheme && value.len > 0)
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG,
                           "url: expected http://HOST:PORT/v1/traces, or https, got \"%s\"",
                           out->url);
}

static enum status read_triton(struct str name, struct str value, const char *item,
                               struct v2_trace_update *wanted, struct tracer_options *out,
                               struct error *err) {
    if (str_is(name, "log-frequency")) {
        return v2_trace_parse_number(V2_TRACE_FREQUENCY, value, wanted, err);
    }
    if (!str_is(name, "file")) {
        return error_unknown_setting(item, err);
    }
    out->file = value.ptr; /* the rest of the item */
    return trace_file_check(out->file, err);
}

static enum status read_item(const char *item, struct v2_trace_update *wanted,
                             struct tracer_options *out, struct error *err) {
    struct str value = str_of(item), mode = {NULL, 0};
    struct str name = str_cut(&value, '=');
    if (!value.ptr) {
        return error_unknown_setting(item, err);
    }
    struct str rest = name, first = str_cut(&rest, ',');
    if (rest.ptr) {
        mode = first;
        name = rest;
    }
    if (!mode.ptr) {
        return read_server(name, value, item, wanted, out, err);
    }
    if (str_eq_nocase(mode, STR("opentelemetry"))) {
        return read_opentelemetry(name, value, item, &out->collector, err);
    }
    return str_eq_nocase(mode, STR("triton")) ? read_triton(name, value, item, wanted, out, err)
                                              : error_unknown_setting(item, err);
}

static enum status check_combination(const struct tracer_options *options, struct error *err) {
    const struct v2_trace_values *values = &options->values;
    if (options->collector.max_batch > options->collector.max_queue) {
        return error_set(err, ST_BAD_CONFIG,
                         "bsp_max_export_batch_size: expected at most bsp_max_queue_size");
    }
    if (values->level == 0) {
        return ST_OK;
    }
    if (options->opentelemetry) {
        return values->level & V2_TRACE_TENSORS
                   ? error_set(err, ST_BAD_CONFIG, "level: a collector takes no TENSORS")
                   : ST_OK;
    }
    if (!options->file) {
        return error_set(err, ST_BAD_CONFIG, "level: traces need a file, triton,file=FILE");
    }
    return values->rate > 0 ? ST_OK : error_set(err, ST_BAD_CONFIG, "rate: expected at least 1");
}

enum status trace_config_parse(const char *const *items, size_t n, struct tracer_options *out,
                               struct error *err) {
    struct v2_trace_update wanted = {.values = {.rate = DEFAULT_RATE, .count = -1}};
    enum status st = ST_OK;
    *out = (struct tracer_options){
        .collector = {.url = "http://localhost:4318/v1/traces",
                      .resource = {{.key = STR("service.name"), .text = STR("sluice")}},
                      .n_resource = 1,
                      .max_queue = 2048,
                      .max_batch = 512,
                      .delay_ms = 5000}};
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = read_item(items[i], &wanted, out, err);
    }
    out->values = wanted.values;
    if (st == ST_OK) {
        st = check_combination(out, err);
    }
    return st == ST_OK ? ST_OK : (err->status = ST_BAD_CONFIG);
}
