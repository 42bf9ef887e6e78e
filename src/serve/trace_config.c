/* --trace-config. Values have the rules that clients' have, but that a file may be named. */
#include "serve/trace_config.h"

#include "serve/trace_file.h"

enum { DEFAULT_RATE = 1000 };

static enum status unknown(const char *item, struct error *err) {
    return error_set(
        err, ST_BAD_CONFIG,
        "expected level=, rate=, count=, mode=, triton,file= or triton,log-frequency=, "
        "got \"%s\"",
        item);
}

/* The reference's words. */
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
                               struct v2_trace_wanted *wanted, struct error *err) {
    if (str_is(name, "level")) {
        return read_level(value, &wanted->values, err);
    }
    if (str_is(name, "rate")) {
        return v2_trace_take_number(V2_TRACE_RATE, value, wanted, err);
    }
    if (str_is(name, "count")) {
        return v2_trace_take_number(V2_TRACE_COUNT, value, wanted, err);
    }
    if (!str_is(name, "mode")) {
        return unknown(item, err);
    }
    return str_is(value, "triton")
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG, "mode: expected triton, got \"%.*s\"",
                           STR_ARG(value));
}

static enum status read_triton(struct str name, struct str value, const char *item,
                               struct v2_trace_wanted *wanted, struct tracer_options *out,
                               struct error *err) {
    if (str_is(name, "log-frequency")) {
        return v2_trace_take_number(V2_TRACE_FREQUENCY, value, wanted, err);
    }
    if (!str_is(name, "file")) {
        return unknown(item, err);
    }
    out->file = value.ptr; /* the rest of the item */
    return trace_file_check(out->file, err);
}

static enum status read_item(const char *item, struct v2_trace_wanted *wanted,
                             struct tracer_options *out, struct error *err) {
    struct str value = str_of(item), mode = {NULL, 0};
    struct str name = str_cut(&value, '=');
    if (!value.ptr) {
        return unknown(item, err);
    }
    struct str rest = name, first = str_cut(&rest, ',');
    if (rest.ptr) {
        mode = first;
        name = rest;
    }
    if (!mode.ptr) {
        return read_server(name, value, item, wanted, err);
    }
    return str_is(mode, "triton") ? read_triton(name, value, item, wanted, out, err)
                                  : unknown(item, err);
}

enum status trace_config_read(const char *const *items, size_t n, struct tracer_options *out,
                              struct error *err) {
    struct v2_trace_wanted wanted = {.values = {.rate = DEFAULT_RATE, .count = -1}};
    enum status st = ST_OK;
    *out = (struct tracer_options){.file = NULL};
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = read_item(items[i], &wanted, out, err);
    }
    if (st == ST_OK && wanted.values.level != 0 && !out->file) {
        st = error_set(err, ST_BAD_CONFIG, "level: traces need a file, triton,file=FILE");
    }
    if (st == ST_OK && wanted.values.level != 0 && wanted.values.rate == 0) {
        st = error_set(err, ST_BAD_CONFIG, "rate: expected at least 1");
    }
    out->values = wanted.values;
    return st == ST_OK ? ST_OK : (err->status = ST_BAD_CONFIG);
}
