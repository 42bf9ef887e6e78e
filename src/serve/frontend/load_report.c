/* Load reports, made of the gauges that the models have. */
#include "serve/frontend/load_report.h"

#include "core/base/json_writer.h"
#include "core/event/clock.h"
#include "serve/scheduler/statistics/statistics.h"

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

static struct load_counts total_load(void *repository) {
    struct load_counts total = {0, 0, 0};
    repository_visit(repository, add_to_total, &total);
    return total;
}

/* ---- the totals of many models --------------------------------------------------------------- */

struct load_counts load_totals_get(struct load_totals *totals, uint64_t now_ns,
                                   struct load_counts (*count)(void *context), void *context) {
    uint64_t due_ns = atomic_load_explicit(&totals->due_ns, memory_order_relaxed);
    bool is_first = due_ns == 0;
    bool counts = now_ns >= due_ns && atomic_compare_exchange_strong_explicit(
                                          &totals->due_ns, &due_ns, now_ns + LOAD_TOTALS_NS,
                                          memory_order_relaxed, memory_order_relaxed);
    if (!counts && !is_first) {
        return (struct load_counts){
            atomic_load_explicit(&totals->queued, memory_order_relaxed),
            atomic_load_explicit(&totals->running, memory_order_relaxed),
            atomic_load_explicit(&totals->instances, memory_order_relaxed),
        };
    }
    struct load_counts counted = count(context);
    atomic_store_explicit(&totals->queued, counted.queued, memory_order_relaxed);
    atomic_store_explicit(&totals->running, counted.running, memory_order_relaxed);
    atomic_store_explicit(&totals->instances, counted.instances, memory_order_relaxed);
    return counted;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void add_counts(struct json_writer *json, const struct load_counts *load) {
    json_write_u64(json, "queued", load->queued);
    json_write_u64(json, "running", load->running);
    json_write_u64(json, "instances", load->instances);
}

static void add_entry(void *user, const struct repository_entry *entry) {
    struct json_writer *json = user;
    if (entry->phase != REPOSITORY_READY) {
        return;
    }
    struct load_counts load = read_load_counts(entry->version);
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", entry->model);
    json_write_u64_string(json, "version", entry->number);
    add_counts(json, &load);
    json_write_close(json, '}');
}

void load_report_print(struct repository *repository, struct buf *out) {
    struct load_counts total = total_load(repository);
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    add_counts(&json, &total);
    json_write_open(&json, "models", '[');
    repository_visit(repository, add_entry, &json);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
}

/* ---- as a header field ----------------------------------------------------------------------- */

enum load_report_format load_report_requested_format(const struct http_head *head) {
    struct str value = {NULL, 0};
    if (http_head_find(head, STR("endpoint-load-metrics-format"), &value) != 1) {
        return LOAD_REPORT_NONE;
    }
    if (str_eq_nocase(value, STR("text"))) {
        return LOAD_REPORT_TEXT;
    }
    return str_eq_nocase(value, STR("json")) ? LOAD_REPORT_JSON : LOAD_REPORT_NONE;
}

static double utilization_of(const struct load_counts *total) {
    double busy = (double)(total->queued + total->running);
    return total->instances > 0 ? busy / (double)total->instances : 0;
}

/* Appends the named metrics of the report, with `prefix` before their names. */
static void print_text_metrics(struct buf *out, const char *prefix,
                               const struct load_counts *load) {
    buf_printf(out,
               ", named_metrics.%squeued=%llu, named_metrics.%srunning=%llu, "
               "named_metrics.%sinstances=%llu",
               prefix, (unsigned long long)load->queued, prefix, (unsigned long long)load->running,
               prefix, (unsigned long long)load->instances);
}

static void print_text_value(struct buf *out, const struct load_counts *total,
                             const struct load_counts *model) {
    buf_printf(out, "TEXT application_utilization=%.6g", utilization_of(total));
    print_text_metrics(out, "", total);
    if (model) {
        print_text_metrics(out, "model_", model);
    }
}

static void print_json_value(struct buf *out, const struct load_counts *total,
                             const struct load_counts *model) {
    struct json_writer json = {.out = out};
    buf_add_str(out, STR("JSON "));
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_digits(&json, "application_utilization", utilization_of(total), 6);
    json_write_open(&json, "named_metrics", '{');
    add_counts(&json, total);
    if (model) {
        json_write_u64(&json, "model_queued", model->queued);
        json_write_u64(&json, "model_running", model->running);
        json_write_u64(&json, "model_instances", model->instances);
    }
    json_write_close(&json, '}');
    json_write_close(&json, '}');
}

struct str load_report_value(struct load_totals *totals, struct repository *repository,
                             struct model_version *version, enum load_report_format format,
                             struct arena *arena) {
    struct load_counts model;
    struct load_counts total = repository_has_more_than(repository, LOAD_FEW_VERSIONS)
                                   ? load_totals_get(totals, clock_now_ns(), total_load, repository)
                                   : total_load(repository);
    struct buf out;
    buf_init(&out, arena, 256);
    if (version) {
        model = read_load_counts(version);
    }
    (format == LOAD_REPORT_TEXT ? print_text_value : print_json_value)(&out, &total,
                                                                       version ? &model : NULL);
    return out.failed ? STR("") : buf_str(&out);
}

size_t load_report_add(struct http_field *fields, size_t n, const struct http_head *head,
                       struct load_totals *totals, struct repository *repository,
                       struct model_version *version, struct arena *arena) {
    enum load_report_format format = load_report_requested_format(head);
    if (format != LOAD_REPORT_NONE) {
        struct str value = load_report_value(totals, repository, version, format, arena);
        if (value.len > 0) {
            fields[n++] = (struct http_field){STR("endpoint-load-metrics"), value};
        }
    }
    return n;
}
