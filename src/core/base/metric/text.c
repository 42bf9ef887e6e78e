/* Writing metrics as text. Samples are put together without printf: a page may have thousands of
 * lines and may be read ten times a second. */
#include "core/base/metric/text.h"

#include <math.h>

#include "core/base/num.h"

/* ---- which format ---------------------------------------------------------------------------- */

const char *metric_content_type(enum metric_format format) {
    return format == METRIC_FORMAT_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

/* Parses one element of Accept. Returns: its weight; 0 for another version of OpenMetrics, and for
 * an invalid weight. */
static double element_weight(struct str element, struct str *type, bool *is_open) {
    *type = str_trim(str_cut(&element, ';'));
    *is_open = str_eq_nocase(*type, STR("application/openmetrics-text"));
    double weight = 1;
    while (element.ptr) {
        struct str value = str_trim(str_cut(&element, ';'));
        struct str key = str_trim(str_cut(&value, '='));
        value = str_trim(value);
        if (str_eq_nocase(key, STR("q")) &&
            (!num_parse_f64(value, &weight) || weight < 0 || weight > 1)) {
            return 0;
        }
        if (*is_open && str_eq_nocase(key, STR("version")) && !str_is(value, "1.0.0") &&
            !str_is(value, "0.0.1")) {
            return 0;
        }
    }
    return weight;
}

enum metric_format metric_format_negotiate(struct str accept) {
    double open = 0, plain = 0;
    while (accept.ptr) {
        struct str type;
        bool is_open;
        double weight = element_weight(str_trim(str_cut(&accept, ',')), &type, &is_open);
        if (is_open) {
            open = weight > open ? weight : open;
        } else if (str_eq_nocase(type, STR("text/plain")) || str_eq_nocase(type, STR("text/*")) ||
                   str_is(type, "*/*")) {
            plain = weight > plain ? weight : plain;
        }
    }
    return open > 0 && open >= plain ? METRIC_FORMAT_OPENMETRICS : METRIC_FORMAT_PROMETHEUS;
}

/* ---- families -------------------------------------------------------------------------------- */

static const char *kind_name(const struct metric_text *text, enum metric_kind kind) {
    switch (kind) {
    case METRIC_KIND_COUNTER:
        return text->format == METRIC_FORMAT_OPENMETRICS &&
                       !str_ends_with(text->name, STR("_total"))
                   ? "unknown"
                   : "counter";
    case METRIC_KIND_GAUGE:
        return "gauge";
    case METRIC_KIND_SUMMARY:
        return "summary";
    case METRIC_KIND_HISTOGRAM:
        break;
    }
    return "histogram";
}

static void add_head(struct metric_text *text, struct str word, struct str family,
                     struct str value) {
    buf_add_str(text->out, word);
    buf_add_str(text->out, family);
    buf_add_char(text->out, ' ');
    buf_add_str(text->out, value);
    buf_add_char(text->out, '\n');
}

void metric_text_begin(struct metric_text *text, struct str name, enum metric_kind kind,
                       struct str help) {
    struct str family = name, total = STR("_total");
    text->name = name;
    if (text->format == METRIC_FORMAT_OPENMETRICS && kind == METRIC_KIND_COUNTER &&
        str_ends_with(name, total)) {
        family.len -= total.len;
    }
    add_head(text, STR("# HELP "), family, help);
    add_head(text, STR("# TYPE "), family, str_of(kind_name(text, kind)));
}

void metric_text_end(struct metric_text *text) {
    if (text->format == METRIC_FORMAT_OPENMETRICS) {
        buf_add_str(text->out, STR("# EOF\n"));
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

void metric_label_add(struct buf *labels, const char *name, struct str value) {
    if (labels->len > 0) {
        buf_add_char(labels, ',');
    }
    buf_add_str(labels, str_of(name));
    buf_add_str(labels, STR("=\""));
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (c == '\\' || c == '"' || c == '\n') {
            buf_add_char(labels, '\\');
        }
        buf_add_char(labels, c == '\n' ? 'n' : c);
    }
    buf_add_char(labels, '"');
}

/* Writes a sample up to its value. */
static void begin_sample(struct metric_text *text, struct str suffix, struct str labels) {
    buf_add_str(text->out, text->name);
    buf_add_str(text->out, suffix);
    if (labels.len > 0) {
        buf_add_char(text->out, '{');
        buf_add_str(text->out, labels);
        buf_add_char(text->out, '}');
    }
    buf_add_char(text->out, ' ');
}

void metric_text_i64(struct metric_text *text, struct str labels, int64_t value) {
    begin_sample(text, STR(""), labels);
    buf_add_i64(text->out, value);
    buf_add_char(text->out, '\n');
}

void metric_text_u64(struct metric_text *text, struct str labels, uint64_t value) {
    begin_sample(text, STR(""), labels);
    buf_add_u64(text->out, value);
    buf_add_char(text->out, '\n');
}

static void add_f64(struct buf *out, double value) {
    if (isnan(value)) {
        buf_add_str(out, STR("NaN"));
    } else if (isinf(value)) {
        buf_add_str(out, value > 0 ? STR("+Inf") : STR("-Inf"));
    } else {
        buf_printf(out, "%.15g", value);
    }
}

void metric_text_f64(struct metric_text *text, struct str labels, double value) {
    begin_sample(text, STR(""), labels);
    add_f64(text->out, value);
    buf_add_char(text->out, '\n');
}

/* n / 10^digits, with at least one digit after the point: 1048576 and 6 are "1.048576". */
static void add_decimal(struct buf *out, uint64_t n, unsigned digits) {
    uint64_t scale = 1;
    for (unsigned i = 0; i < digits; i++) {
        scale *= 10;
    }
    buf_add_u64(out, n / scale);
    buf_add_char(out, '.');
    do {
        n %= scale;
        scale /= 10;
        buf_add_char(out, (char)('0' + n / scale));
    } while (n % scale != 0);
}

static void add_bound(struct buf *out, unsigned i, enum metric_unit unit) {
    if (unit == METRIC_UNIT_SECONDS) {
        add_decimal(out, UINT64_C(1) << i, 6);
    } else {
        buf_add_u64(out, UINT64_C(1) << i);
        buf_add_str(out, STR(".0"));
    }
}

static void begin_bucket(struct metric_text *text, struct str labels) {
    buf_add_str(text->out, text->name);
    buf_add_str(text->out, STR("_bucket{"));
    buf_add_str(text->out, labels);
    buf_add_str(text->out, labels.len > 0 ? STR(",le=\"") : STR("le=\""));
}

static void end_bucket(struct metric_text *text, uint64_t below) {
    buf_add_str(text->out, STR("\"} "));
    buf_add_u64(text->out, below);
    buf_add_char(text->out, '\n');
}

static void add_sum_and_count(struct metric_text *text, struct str labels, enum metric_unit unit,
                              uint64_t sum, uint64_t count) {
    begin_bucket(text, labels);
    buf_add_str(text->out, STR("+Inf"));
    end_bucket(text, count);
    begin_sample(text, STR("_sum"), labels);
    if (unit == METRIC_UNIT_SECONDS) {
        add_decimal(text->out, sum, 9);
    } else if (unit == METRIC_UNIT_MILLISECONDS) {
        add_decimal(text->out, sum, 6);
    } else {
        buf_add_u64(text->out, sum);
    }
    buf_add_char(text->out, '\n');
    begin_sample(text, STR("_count"), labels);
    buf_add_u64(text->out, count);
    buf_add_char(text->out, '\n');
}

void metric_text_distribution(struct metric_text *text, struct str labels,
                              const struct metric_distribution *distribution, enum metric_unit unit,
                              unsigned first, unsigned last) {
    uint64_t below = 0;
    for (unsigned i = 0; i <= last && i < METRIC_BOUNDS; i++) {
        below += distribution->buckets[i];
        if (i < first) {
            continue;
        }
        begin_bucket(text, labels);
        add_bound(text->out, i, unit);
        end_bucket(text, below);
    }
    add_sum_and_count(text, labels, unit, distribution->sum, distribution->count);
}

void metric_text_scale(struct metric_text *text, struct str labels,
                       const struct metric_scale *scale, const uint64_t *counts) {
    uint64_t below = 0;
    for (unsigned i = 0; i < scale->n; i++) {
        below += counts[i];
        begin_bucket(text, labels);
        if (scale->unit == METRIC_UNIT_SECONDS) {
            add_decimal(text->out, scale->bounds[i], 6);
        } else if (scale->unit == METRIC_UNIT_MILLISECONDS) {
            add_decimal(text->out, scale->bounds[i], 3);
        } else {
            buf_add_u64(text->out, scale->bounds[i]);
            buf_add_str(text->out, STR(".0"));
        }
        end_bucket(text, below);
    }
    add_sum_and_count(text, labels, scale->unit, counts[scale->n + 1], below + counts[scale->n]);
}

void metric_text_histogram(struct metric_text *text, struct str labels, const double *bounds,
                           size_t n, const uint64_t *counts, double sum) {
    uint64_t below = 0;
    for (size_t i = 0; i <= n; i++) {
        below += counts[i];
        begin_bucket(text, labels);
        add_f64(text->out, i < n ? bounds[i] : INFINITY);
        if (i < n && bounds[i] == floor(bounds[i]) && fabs(bounds[i]) < 1e15) {
            buf_add_str(text->out, STR(".0")); /* OpenMetrics has bounds as floats */
        }
        end_bucket(text, below);
    }
    begin_sample(text, STR("_sum"), labels);
    add_f64(text->out, sum);
    buf_add_char(text->out, '\n');
    begin_sample(text, STR("_count"), labels);
    buf_add_u64(text->out, below);
    buf_add_char(text->out, '\n');
}

/* ---- summaries ------------------------------------------------------------------------------- */

void metric_text_quantile(struct metric_text *text, struct str labels, double quantile,
                          double value) {
    buf_add_str(text->out, text->name);
    buf_add_char(text->out, '{');
    buf_add_str(text->out, labels);
    buf_printf(text->out, "%squantile=\"%.15g\"} ", labels.len > 0 ? "," : "", quantile);
    if (isnan(value)) {
        buf_add_str(text->out, STR("NaN\n"));
    } else {
        buf_printf(text->out, "%.15g\n", value);
    }
}

void metric_text_totals(struct metric_text *text, struct str labels, uint64_t sum, uint64_t count) {
    begin_sample(text, STR("_sum"), labels);
    buf_add_u64(text->out, sum);
    buf_add_char(text->out, '\n');
    begin_sample(text, STR("_count"), labels);
    buf_add_u64(text->out, count);
    buf_add_char(text->out, '\n');
}
