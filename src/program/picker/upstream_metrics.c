/* Numbers under the names of the upstream project's picker, so that its dashboards and alerts work,
 * where they mean the same: docs/observability.md says of each how it differs. */
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "program/picker/admin.h"
#include "program/picker/admin_pools.h"

enum { LAST_PICK_TIME = 17, FIRST_REQUEST_TIME = 9, LAST_REQUEST_TIME = METRIC_BOUNDS - 1 };

static struct buf labels_of(const struct metric_text *text, const char *name, struct str value) {
    struct buf labels;
    buf_init(&labels, text->out->arena, value.len + 128);
    metric_label_add(&labels, name, value);
    return labels;
}

/* ---- times of picks -------------------------------------------------------------------------- */

void pick_times_read(const struct pick_admin *admin, struct metric_distribution out[N_PICK_TIMES]) {
    const struct pick_stats *ledgers[PICK_MAX_STATS];
    size_t n = pick_service_stats(admin->service, ledgers);
    for (size_t phase = 0; phase < N_PICK_TIMES; phase++) {
        out[phase] = (struct metric_distribution){.count = 0};
        for (size_t i = 0; i < n; i++) {
            metric_histogram_read(&ledgers[i]->times[phase], &out[phase]);
        }
    }
}

static void print_times(const struct pick_admin *admin, struct metric_text *text) {
    struct metric_distribution times[N_PICK_TIMES];
    pick_times_read(admin, times);
    metric_family_begin(text, METRIC_FAMILY_PICK_TIME);
    for (size_t i = 0; i < N_PICK_TIMES; i++) {
        struct buf labels = labels_of(text, "phase", str_of(PICK_TIME_NAMES[i]));
        metric_text_distribution(text, buf_str(&labels), &times[i], METRIC_UNIT_SECONDS, 0,
                                 LAST_REQUEST_TIME);
    }
    struct metric_distribution *sum = &times[PICK_TIME_HEADERS];
    metric_distribution_add(sum, &times[PICK_TIME_BODY]);
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_SCHEDULER_TIME);
    metric_text_distribution(text, STR(""), sum, METRIC_UNIT_SECONDS, 0, LAST_PICK_TIME);
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* A pool, and what its endpoints say on average. */
struct summary {
    struct str labels;
    uint64_t n_ready;
    double waiting, used;
    uint64_t n_waiting, n_used; /* endpoints that have said it of late */
};

static void read_load(const struct endpoint_load *load, struct summary *out) {
    if (load->known & LOAD_WAITING) {
        out->waiting += load->n_waiting;
        out->n_waiting++;
    }
    if (load->known & LOAD_KV_CACHE) {
        out->used += (double)load->kv_cache_used;
        out->n_used++;
    }
}

static struct summary summarise_pool(const struct metric_text *text,
                                     const struct pick_admin_pool *pool, uint64_t now_ns) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    struct buf labels = labels_of(text, "name", pick_admin_pool_name(pool));
    struct summary summary = {.labels = buf_str(&labels)};
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint_load load;
        pool_snapshot_get_load(snapshot, &snapshot->members[i], now_ns, &load);
        summary.n_ready += endpoint_is_ready(snapshot->members[i].endpoint);
        read_load(&load, &summary);
    }
    return summary;
}

static void print_average(struct metric_text *text, struct str labels, double sum, uint64_t n) {
    if (n > 0) {
        metric_text_f64(text, labels, sum / (double)n);
    }
}

static void print_queues(const struct pick_admin_pool *pool, struct str pool_label, uint64_t now_ns,
                         struct metric_text *text) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        struct endpoint_load load;
        struct buf labels;
        pool_snapshot_get_load(snapshot, member, now_ns, &load);
        if (load.known & LOAD_WAITING) {
            buf_init(&labels, text->out->arena, pool_label.len + ENDPOINT_TEXT_BYTES + 32);
            buf_add_str(&labels, pool_label);
            metric_label_add(&labels, "model_server_pod", endpoint_text(member->endpoint));
            metric_text_u64(text, buf_str(&labels), load.n_waiting);
        }
    }
}

/* Family by family, as a page must have it. */
static void print_pools(const struct pick_admin_pools *list, struct metric_text *text) {
    uint64_t now_ns = clock_now_ns();
    struct summary *all = arena_calloc(text->out->arena, list->n + 1, sizeof(*all));
    if (!all) {
        text->out->failed = true;
        return;
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_READY);
    for (size_t i = 0; i < list->n; i++) {
        all[i] = summarise_pool(text, &list->items[i], now_ns);
        metric_text_u64(text, all[i].labels, all[i].n_ready);
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_QUEUE_SIZE);
    for (size_t i = 0; i < list->n; i++) {
        print_average(text, all[i].labels, all[i].waiting, all[i].n_waiting);
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_KV_CACHE);
    for (size_t i = 0; i < list->n; i++) {
        print_average(text, all[i].labels, all[i].used, all[i].n_used);
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_ENDPOINT_QUEUE_SIZE);
    for (size_t i = 0; i < list->n; i++) {
        print_queues(&list->items[i], all[i].labels, now_ns, text);
    }
}

/* What is being written, and of which pools. */
struct page {
    struct metric_text *text;
    const struct pick_admin_pools *list;
};

/* ---- models ---------------------------------------------------------------------------------- */

/* With the pool, where there is more than one. */
static struct buf begin_row(const struct page *page, const struct pick_stats_sum *row) {
    struct buf labels;
    buf_init(&labels, page->text->out->arena, row->pool.len + row->model.len + 192);
    if (page->list->named) {
        metric_label_add(&labels, "pool", row->pool);
    }
    metric_label_add(&labels, "model_name", row->model);
    return labels;
}

static struct str labels_of_row(const struct page *page, const struct pick_stats_sum *row) {
    struct buf labels = begin_row(page, row);
    metric_label_add(&labels, "target_model_name", row->target);
    return buf_str(&labels);
}

static void print_errors(const struct page *page, const struct pick_stats_sum *row) {
    for (size_t status = 0; status < ST_COUNT_; status++) {
        if (row->n_refused[status] > 0) {
            struct buf labels = begin_row(page, row);
            metric_label_add(&labels, "target_model_name", row->target);
            metric_label_add(&labels, "error_code", str_of(status_name((enum status)status)));
            metric_text_u64(page->text, buf_str(&labels), row->n_refused[status]);
        }
    }
}

/* Rows are sorted, so those of one model stand together. */
static void print_running(const struct page *page, const struct pick_stats_sum *rows, size_t n) {
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_RUNNING);
    for (size_t i = 0, next; i < n; i = next) {
        uint64_t n_running = 0;
        for (next = i; next < n && str_eq(rows[next].model, rows[i].model) &&
                       str_eq(rows[next].pool, rows[i].pool);
             next++) {
            n_running += rows[next].n_running;
        }
        struct buf labels = begin_row(page, &rows[i]);
        metric_text_u64(page->text, buf_str(&labels), n_running);
    }
}

static void print_models(const struct pick_admin *admin, const struct page *page) {
    struct metric_text *text = page->text;
    const struct pick_stats *ledgers[PICK_MAX_STATS];
    size_t n = 0, n_ledgers = pick_service_stats(admin->service, ledgers);
    struct pick_stats_sum *rows = NULL;
    struct error err;
    if (pick_stats_sum_all(ledgers, n_ledgers, text->out->arena, &rows, &n, &err) != ST_OK) {
        text->out->failed = true;
        return;
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_REQUESTS);
    for (size_t i = 0; i < n; i++) {
        metric_text_u64(text, labels_of_row(page, &rows[i]), rows[i].n_picked);
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_ERRORS);
    for (size_t i = 0; i < n; i++) {
        print_errors(page, &rows[i]);
    }
    print_running(page, rows, n);
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_REQUEST_TIME);
    for (size_t i = 0; i < n; i++) {
        metric_text_distribution(text, labels_of_row(page, &rows[i]), &rows[i].times,
                                 METRIC_UNIT_SECONDS, FIRST_REQUEST_TIME, LAST_REQUEST_TIME);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

void pick_upstream_metrics_print(const struct pick_admin *admin,
                                 const struct pick_admin_pools *list, struct metric_text *text) {
    struct buf labels = labels_of(text, "build_ref", STR("sluice " SLUICE_VERSION));
    struct page page = {text, list};
    print_times(admin, text);
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_INFO);
    metric_text_u64(text, buf_str(&labels), 1);
    print_pools(list, text);
    pick_flow_control_metrics(list, text);
    print_models(admin, &page);
}
