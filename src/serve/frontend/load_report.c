/* Load reports. The numbers are gauges that the models keep anyway: nothing is counted for this. */
#include "serve/frontend/load_report.h"

#include "serve/scheduler/statistics/statistics.h"

struct load {
    uint64_t queued, running, instances;
};

static struct load load_of(struct model_version *version) {
    struct load load;
    model_version_load(version, &load.queued, &load.running, &load.instances);
    return load;
}

static void add_up(void *cookie, const struct repository_entry *entry) {
    struct load *total = cookie;
    if (entry->version) {
        struct load load = load_of(entry->version);
        total->queued += load.queued;
        total->running += load.running;
        total->instances += entry->phase == REPOSITORY_READY ? load.instances : 0;
    }
}

static struct load total_of(struct repository *repository) {
    struct load total = {0, 0, 0};
    repository_visit(repository, add_up, &total);
    return total;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void add_load(struct buf *out, const struct load *load) {
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

static void add_entry(void *cookie, const struct repository_entry *entry) {
    struct listing *listing = cookie;
    if (entry->phase != REPOSITORY_READY) {
        return;
    }
    struct load load = load_of(entry->version);
    buf_add_str(listing->out, listing->more ? STR(",{\"name\":") : STR("{\"name\":"));
    buf_add_json_string(listing->out, entry->model);
    buf_add_str(listing->out, STR(",\"version\":\""));
    buf_add_u64(listing->out, entry->number);
    buf_add_str(listing->out, STR("\","));
    add_load(listing->out, &load);
    buf_add_char(listing->out, '}');
    listing->more = true;
}

void load_report_print(struct repository *repository, struct buf *out) {
    struct load total = total_of(repository);
    struct listing listing = {out, false};
    buf_add_char(out, '{');
    add_load(out, &total);
    buf_add_str(out, STR(",\"models\":["));
    repository_visit(repository, add_entry, &listing);
    buf_add_str(out, STR("]}"));
}

/* ---- as a header field ----------------------------------------------------------------------- */

enum load_format load_report_asked(const struct http_head *head) {
    struct str value = {NULL, 0};
    if (http_head_find(head, "endpoint-load-metrics-format", &value) != 1) {
        return LOAD_NONE;
    }
    if (str_eq_nocase(value, STR("text"))) {
        return LOAD_TEXT;
    }
    return str_eq_nocase(value, STR("json")) ? LOAD_JSON : LOAD_NONE;
}

/* One of the report's own metrics, with `prefix` before its name. */
static void add_named(struct buf *out, enum load_format format, const char *prefix,
                      const char *name, uint64_t value) {
    if (format == LOAD_TEXT) {
        buf_printf(out, ", named_metrics.%s%s=%llu", prefix, name, (unsigned long long)value);
    } else {
        bool first = out->data[out->len - 1] == '{';
        buf_printf(out, "%s\"%s%s\":%llu", first ? "" : ",", prefix, name,
                   (unsigned long long)value);
    }
}

static void add_all(struct buf *out, enum load_format format, const char *prefix,
                    const struct load *load) {
    add_named(out, format, prefix, "queued", load->queued);
    add_named(out, format, prefix, "running", load->running);
    add_named(out, format, prefix, "instances", load->instances);
}

struct str load_report_value(struct repository *repository, struct model_version *version,
                             enum load_format format, struct arena *arena) {
    struct load total = total_of(repository);
    double busy = (double)(total.queued + total.running);
    double utilization = total.instances > 0 ? busy / (double)total.instances : 0;
    struct buf out;
    buf_init(&out, arena, 256);
    buf_printf(&out,
               format == LOAD_TEXT ? "TEXT application_utilization=%.6g"
                                   : "JSON {\"application_utilization\":%.6g,\"named_metrics\":{",
               utilization);
    if (!out.failed) {
        add_all(&out, format, "", &total);
    }
    if (!out.failed && version) {
        struct load load = load_of(version);
        add_all(&out, format, "model_", &load);
    }
    if (format == LOAD_JSON) {
        buf_add_str(&out, STR("}}"));
    }
    return out.failed ? STR("") : buf_str(&out);
}

size_t load_report_add(struct http_field *fields, size_t n, const struct http_head *head,
                       struct repository *repository, struct model_version *version,
                       struct arena *arena) {
    enum load_format format = load_report_asked(head);
    if (format != LOAD_NONE) {
        struct str value = load_report_value(repository, version, format, arena);
        if (value.len > 0) {
            fields[n++] = (struct http_field){STR("endpoint-load-metrics"), value};
        }
    }
    return n;
}
