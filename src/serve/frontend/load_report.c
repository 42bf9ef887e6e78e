/* Load reports, made of the gauges that the models have. */
#include "serve/frontend/load_report.h"

#include "serve/scheduler/statistics/statistics.h"

struct load_counts {
    uint64_t queued, running, instances;
};

static struct load_counts read_load_counts(struct model_version *version) {
    struct load_counts load;
    model_version_gauges(version, &load.queued, &load.running, &load.instances);
    return load;
}

static void add_to_total(void *user, const struct repository_entry *entry) {
    struct load_counts *total = user;
    if (entry->version) {
        struct load_counts load = read_load_counts(entry->version);
        total->queued += load.queued;
        total->running += load.running;
        total->instances += entry->phase == REPOSITORY_READY ? load.instances : 0;
    }
}

static struct load_counts total_load(struct repository *repository) {
    struct load_counts total = {0, 0, 0};
    repository_visit(repository, add_to_total, &total);
    return total;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void print_counts(struct buf *out, const struct load_counts *load) {
    buf_add_str(out, STR("\"queued\":"));
    buf_add_u64(out, load->queued);
    buf_add_str(out, STR(",\"running\":"));
    buf_add_u64(out, load->running);
    buf_add_str(out, STR(",\"instances\":"));
    buf_add_u64(out, load->instances);
}

struct listing {
    struct buf *out;
    bool more;
};

static void print_entry(void *user, const struct repository_entry *entry) {
    struct listing *listing = user;
    if (entry->phase != REPOSITORY_READY) {
        return;
    }
    struct load_counts load = read_load_counts(entry->version);
    buf_add_str(listing->out, listing->more ? STR(",{\"name\":") : STR("{\"name\":"));
    buf_add_json_string(listing->out, entry->model);
    buf_add_str(listing->out, STR(",\"version\":\""));
    buf_add_u64(listing->out, entry->number);
    buf_add_str(listing->out, STR("\","));
    print_counts(listing->out, &load);
    buf_add_char(listing->out, '}');
    listing->more = true;
}

void load_report_print(struct repository *repository, struct buf *out) {
    struct load_counts total = total_load(repository);
    struct listing listing = {out, false};
    buf_add_char(out, '{');
    print_counts(out, &total);
    buf_add_str(out, STR(",\"models\":["));
    repository_visit(repository, print_entry, &listing);
    buf_add_str(out, STR("]}"));
}

/* ---- as a header field ----------------------------------------------------------------------- */

enum load_report_format load_report_requested_format(const struct http_head *head) {
    struct str value = {NULL, 0};
    if (http_head_find(head, "endpoint-load-metrics-format", &value) != 1) {
        return LOAD_REPORT_NONE;
    }
    if (str_eq_nocase(value, STR("text"))) {
        return LOAD_REPORT_TEXT;
    }
    return str_eq_nocase(value, STR("json")) ? LOAD_REPORT_JSON : LOAD_REPORT_NONE;
}

/* Appends a named metric of the report, with `prefix` before its name. */
static void print_named_metric(struct buf *out, enum load_report_format format, const char *prefix,
                               const char *name, uint64_t value) {
    if (format == LOAD_REPORT_TEXT) {
        buf_printf(out, ", named_metrics.%s%s=%llu", prefix, name, (unsigned long long)value);
    } else {
        bool first = out->data[out->len - 1] == '{';
        buf_printf(out, "%s\"%s%s\":%llu", first ? "" : ",", prefix, name,
                   (unsigned long long)value);
    }
}

static void print_named_metrics(struct buf *out, enum load_report_format format, const char *prefix,
                                const struct load_counts *load) {
    print_named_metric(out, format, prefix, "queued", load->queued);
    print_named_metric(out, format, prefix, "running", load->running);
    print_named_metric(out, format, prefix, "instances", load->instances);
}

struct str load_report_value(struct repository *repository, struct model_version *version,
                             enum load_report_format format, struct arena *arena) {
    struct load_counts total = total_load(repository);
    double busy = (double)(total.queued + total.running);
    double utilization = total.instances > 0 ? busy / (double)total.instances : 0;
    struct buf out;
    buf_init(&out, arena, 256);
    buf_printf(&out,
               format == LOAD_REPORT_TEXT
                   ? "TEXT application_utilization=%.6g"
                   : "JSON {\"application_utilization\":%.6g,\"named_metrics\":{",
               utilization);
    if (!out.failed) {
        print_named_metrics(&out, format, "", &total);
    }
    if (!out.failed && version) {
        struct load_counts load = read_load_counts(version);
        print_named_metrics(&out, format, "model_", &load);
    }
    if (format == LOAD_REPORT_JSON) {
        buf_add_str(&out, STR("}}"));
    }
    return out.failed ? STR("") : buf_str(&out);
}

size_t load_report_add(struct http_field *fields, size_t n, const struct http_head *head,
                       struct repository *repository, struct model_version *version,
                       struct arena *arena) {
    enum load_report_format format = load_report_requested_format(head);
    if (format != LOAD_REPORT_NONE) {
        struct str value = load_report_value(repository, version, format, arena);
        if (value.len > 0) {
            fields[n++] = (struct http_field){STR("endpoint-load-metrics"), value};
        }
    }
    return n;
}
