/* Parsing of --concurrency and --rate, and the steps that follow from them. */
#include "program/loadgen/plan.h"

#include <math.h>

#include "core/base/num.h"

enum { MAX_CONCURRENCY = 65536, OPEN_LOOP_CONCURRENCY = 256 };

static const struct bench_sweep_kind concurrencies = {"--concurrency", true, 1, MAX_CONCURRENCY};
static const struct bench_sweep_kind rates = {"--rate", false, 0.001, 1e7};
static const char default_concurrency[] = "1,4,16";

static enum status sweep_error(const struct bench_sweep_kind *kind, struct str item,
                               const char *why, struct error *err) {
    return error_set(err, ST_BAD_CONFIG,
                     "%s %.*s: %s; expected numbers from %g to %g such as 4, 1,4,16, 1:32:2 (every "
                     "second from 1 to 32) or 1:32:x2 (doubling)",
                     kind->flag, STR_ARG(item), why, kind->min, kind->max);
}

static bool parse_number(const struct bench_sweep_kind *kind, struct str text, double *out) {
    uint64_t whole;
    if (!kind->whole) {
        return num_parse_f64(text, out);
    }
    if (!num_parse_u64(text, &whole)) {
        return false;
    }
    *out = (double)whole;
    return true;
}

static enum status add_value(const struct bench_sweep_kind *kind, struct str item, double value,
                             struct bench_sweep *out, struct error *err) {
    if (value < kind->min || value > kind->max) {
        return sweep_error(kind, item, "out of range", err);
    }
    if (out->n == BENCH_MAX_STEPS) {
        return error_set(err, ST_BAD_CONFIG, "%s: more than %d steps", kind->flag, BENCH_MAX_STEPS);
    }
    out->values[out->n++] = value;
    return ST_OK;
}

/* FROM:TO[:STEP] or FROM:TO:xFACTOR. */
static enum status add_range(const struct bench_sweep_kind *kind, struct str item,
                             struct bench_sweep *out, struct error *err) {
    struct str rest = item;
    struct str texts[2] = {str_cut(&rest, ':'), str_cut(&rest, ':')};
    double from, to, step = 1, factor = 1;
    if (!parse_number(kind, texts[0], &from) || !parse_number(kind, texts[1], &to)) {
        return sweep_error(kind, item, "not a range", err);
    }
    if (rest.ptr && rest.len > 0 && rest.ptr[0] == 'x') {
        step = 0;
        if (!num_parse_f64(str_make(rest.ptr + 1, rest.len - 1), &factor) || factor <= 1) {
            return sweep_error(kind, item, "the factor after x must be above 1", err);
        }
    } else if (rest.ptr && (!parse_number(kind, rest, &step) || step <= 0)) {
        return sweep_error(kind, item, "the step must be above 0", err);
    }
    if (to < from) {
        return sweep_error(kind, item, "its end is below its start", err);
    }
    enum status status = ST_OK;
    double last = 0, exact = from;
    while (exact <= to * (1 + 1e-9) && status == ST_OK) {
        double value = kind->whole ? floor(exact + 1e-9) : exact;
        if (value > last) { /* with a small factor a whole number may repeat */
            status = add_value(kind, item, value, out, err);
        }
        last = value;
        exact = exact * factor + step;
    }
    return status;
}

enum status bench_sweep_parse(const struct bench_sweep_kind *kind, const char *text,
                              struct bench_sweep *out, struct error *err) {
    struct str rest = str_of(text);
    *out = (struct bench_sweep){0};
    while (rest.ptr) {
        struct str item = str_cut(&rest, ',');
        struct str part = item;
        double value;
        enum status status;
        (void)str_cut(&part, ':');
        if (part.ptr) {
            status = add_range(kind, item, out, err);
        } else if (parse_number(kind, item, &value)) {
            status = add_value(kind, item, value, out, err);
        } else {
            status =
                sweep_error(kind, item, kind->whole ? "not a whole number" : "not a number", err);
        }
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static enum status plan_rates(const char *concurrency, const char *rate, struct bench_plan *out,
                              struct error *err) {
    struct bench_sweep sweep, limit = {.values = {OPEN_LOOP_CONCURRENCY}, .n = 1};
    enum status status = bench_sweep_parse(&rates, rate, &sweep, err);
    if (status == ST_OK && concurrency) {
        status = bench_sweep_parse(&concurrencies, concurrency, &limit, err);
    }
    if (status == ST_OK && limit.n != 1) {
        status = error_set(err, ST_BAD_CONFIG,
                           "--concurrency %s: with --rate it must be one number, the limit of "
                           "requests in flight",
                           concurrency);
    }
    if (status != ST_OK) {
        return status;
    }
    for (size_t i = 0; i < sweep.n; i++) {
        out->steps[i] = (struct bench_step){(unsigned)limit.values[0], sweep.values[i]};
    }
    out->n_steps = sweep.n;
    return ST_OK;
}

enum status bench_plan_make(const char *concurrency, const char *rate, struct bench_plan *out,
                            struct error *err) {
    *out = (struct bench_plan){0};
    if (rate) {
        return plan_rates(concurrency, rate, out, err);
    }
    struct bench_sweep sweep;
    enum status status = bench_sweep_parse(
        &concurrencies, concurrency ? concurrency : default_concurrency, &sweep, err);
    for (size_t i = 0; i < sweep.n && status == ST_OK; i++) {
        out->steps[i] = (struct bench_step){(unsigned)sweep.values[i], 0};
    }
    out->n_steps = sweep.n;
    return status;
}
