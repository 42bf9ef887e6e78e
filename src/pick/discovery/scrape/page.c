/* Matches the series of a page against rules, and makes a load of their values at the end. */
#include "pick/discovery/scrape/page.h"

#include <math.h>

#include "core/base/num.h"

static const double NS_PER_S = 1e9;

/* ---- labels ---------------------------------------------------------------------------------- */

/* Returns: a label's value, unescaped into the page's scratch buffer and valid until the next call;
 * ptr NULL: no such label. An unescaped text is not longer than its line, so it fits. */
static struct str read_label(struct scrape_page *page, const struct series *series,
                             struct str name) {
    struct buf text = {.data = page->scratch, .cap = sizeof(page->scratch)};
    return series_label_print(series, name, &text) ? buf_str(&text) : str_make(NULL, 0);
}

static bool has_labels(const struct series *series, struct pool_labels labels) {
    for (size_t i = 0; i < labels.n; i++) {
        if (!series_label_is(series, labels.items[i].key, labels.items[i].value)) {
            return false;
        }
    }
    return true;
}

/* ---- adapters -------------------------------------------------------------------------------- */

static void add_adapters(struct scrape_page *page, struct str names, bool waiting) {
    while (names.ptr) {
        struct str name = str_trim(str_cut(&names, ','));
        if (name.len > 0) {
            load_add_adapter(&page->adapters, name, waiting);
        }
    }
}

static void read_adapters(struct scrape_page *page, const struct series *series) {
    uint64_t most = 0;
    struct str text = read_label(page, series, STR("max_lora"));
    page->adapters = (struct endpoint_load){0};
    if (text.ptr && num_parse_u64(text, &most)) {
        page->adapters.max_adapters = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    }
    add_adapters(page, read_label(page, series, STR("running_lora_adapters")), false);
    add_adapters(page, read_label(page, series, STR("waiting_lora_adapters")), true);
}

/* ---- a series -------------------------------------------------------------------------------- */

/* Returns: false if the series has no valid number. */
static bool value_of(struct scrape_page *page, const struct scrape_rule *rule,
                     const struct series *series, double *out) {
    *out = series->value;
    if (rule->value_label.len > 0) {
        struct str text = read_label(page, series, rule->value_label);
        return text.ptr && num_parse_f64(text, out) && *out >= 0;
    }
    return isfinite(*out) && (*out >= 0 || (rule->into == SCRAPE_ATTRIBUTE && !rule->of_pod));
}

/* Does the sample replace the last one of the rule? */
static bool is_newer(struct scrape_page *page, size_t i, double time) {
    bool keeps_first = page->rules->items[i].combine == SCRAPE_FIRST;
    bool newer = !page->found[i].seen || time > page->found[i].time ||
                 (!keeps_first && time >= page->found[i].time);
    page->found[i].time = newer ? time : page->found[i].time;
    return newer;
}

static void apply_series(struct scrape_page *page, size_t i, const struct series *series) {
    const struct scrape_rule *rule = &page->rules->items[i];
    double value, *sum = &page->found[i].value;
    if (!value_of(page, rule, series, &value)) {
        page->n_invalid++;
        return;
    }
    switch (rule->combine) {
    case SCRAPE_SUM:
        *sum += value;
        break;
    case SCRAPE_MAX:
        *sum = page->found[i].seen && *sum > value ? *sum : value;
        break;
    case SCRAPE_NEWEST:
    case SCRAPE_FIRST:
        if (!is_newer(page, i, rule->into == SCRAPE_ADAPTERS ? value : series->time)) {
            return;
        }
        *sum = value;
        break;
    }
    page->found[i].seen = true;
    if (rule->into == SCRAPE_ADAPTERS) {
        read_adapters(page, series);
    }
}

/* As upstream: a series without the label is of the endpoint, and so is any where its pod is
 * unknown. */
static bool is_of_pod(struct scrape_page *page, const struct series *series) {
    struct str pod = page->pod.len > 0 ? read_label(page, series, STR("pod")) : STR("");
    return page->pod.len == 0 || !pod.ptr || str_eq(pod, page->pod);
}

static void on_series(void *user, const struct series *series) {
    struct scrape_page *page = user;
    for (size_t i = 0; i < page->rules->n; i++) {
        const struct scrape_rule *rule = &page->rules->items[i];
        if (!str_eq(rule->series, series->name) || !has_labels(series, rule->labels)) {
            continue;
        }
        if (rule->of_pod && !is_of_pod(page, series)) {
            page->n_of_others++;
        } else {
            apply_series(page, i, series);
        }
    }
}

/* ---- a page ---------------------------------------------------------------------------------- */

void scrape_page_begin(struct scrape_page *page, const struct scrape_rules *rules, struct str pod) {
    page->rules = rules;
    page->pod = pod;
    page->n_of_others = 0;
    memset(page->found, 0, sizeof(page->found));
    page->adapters = (struct endpoint_load){0};
    page->n_invalid = 0;
    page->is_gzip = false;
    page->reader.names = rules->series;
    page->reader.n_names = rules->n_series;
    page->reader.on_series = on_series;
    page->reader.user = page;
    series_reader_init(&page->reader);
}

void scrape_page_move_rules(struct scrape_page *page, const struct scrape_rules *rules,
                            struct str pod) {
    page->rules = rules;
    page->pod = pod;
    page->reader.names = rules->series;
}

/* RFC 1952, 2.3.1: the first byte, which no text begins with. */
static const char GZIP_FIRST_BYTE = 0x1f;

void scrape_page_read(struct scrape_page *page, struct str piece) {
    if (page->reader.n_bytes == 0 && piece.len > 0) {
        page->is_gzip = piece.ptr[0] == GZIP_FIRST_BYTE;
    }
    series_reader_feed(&page->reader, piece);
}

/* ---- a load, and attributes ------------------------------------------------------------------ */

/* Computes a counter's increase per second. Returns: false if it is not known: on the first page,
 * and after a reset of the counter. */
static bool rate_of(struct scrape_history *history, size_t i, uint64_t asked_ns, double *value) {
    uint64_t before_ns = history->counters[i].at_ns;
    double before = history->counters[i].value, now = *value;
    history->counters[i].at_ns = asked_ns;
    history->counters[i].value = now;
    if (before_ns == 0 || asked_ns <= before_ns || now < before) {
        return false;
    }
    *value = (now - before) * NS_PER_S / (double)(asked_ns - before_ns);
    return true;
}

static uint32_t to_whole(double value) {
    double rounded = value + 0.5;
    return !(rounded >= 1) ? 0 : rounded >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)rounded;
}

/* Returns: the flag of the load's member that was set. */
static unsigned put_value(const struct scrape_page *page, enum scrape_metric into, double value,
                          struct endpoint_load *out) {
    switch (into) {
    case SCRAPE_WAITING:
        out->n_waiting = to_whole(value);
        return LOAD_WAITING;
    case SCRAPE_RUNNING:
        out->n_running = to_whole(value);
        return LOAD_RUNNING;
    case SCRAPE_KV_CACHE:
        out->kv_cache_used = value < 0 ? 0 : value > 1 ? 1 : (float)value;
        return LOAD_KV_CACHE;
    case SCRAPE_KV_BLOCK_TOKENS:
        out->kv_block_tokens = to_whole(value);
        return LOAD_KV_SIZE;
    case SCRAPE_KV_BLOCKS:
        out->n_kv_blocks = to_whole(value);
        return LOAD_KV_SIZE;
    case SCRAPE_ADAPTERS:
        out->max_adapters = page->adapters.max_adapters;
        out->n_running_adapters = page->adapters.n_running_adapters;
        out->n_waiting_adapters = page->adapters.n_waiting_adapters;
        memcpy(out->adapters, page->adapters.adapters, sizeof(out->adapters));
        return LOAD_ADAPTERS;
    case SCRAPE_ATTRIBUTE:
        break;
    }
    return 0;
}

static enum status nothing_there(const struct scrape_page *page, struct error *err) {
    struct str first = page->rules->series[0];
    if (page->is_gzip) {
        return error_set(err, ST_BAD_ANSWER,
                         "its page (%llu bytes) is compressed with gzip, although the request does "
                         "not accept that",
                         (unsigned long long)page->reader.n_bytes);
    }
    if (page->n_invalid > 0) {
        return error_set(err, ST_BAD_ANSWER,
                         "its page has no valid value of the %zu wanted series: %llu are negative "
                         "or not a number",
                         page->rules->n_series, (unsigned long long)page->n_invalid);
    }
    if (page->n_of_others > 0) {
        return error_set(err, ST_BAD_ANSWER,
                         "its page has the wanted series, but none for the pod %.*s",
                         STR_ARG(page->pod));
    }
    return error_set(err, ST_BAD_ANSWER,
                     "its page (%llu bytes, %llu lines) has none of the %zu wanted series, the "
                     "first of which is %.*s",
                     (unsigned long long)page->reader.n_bytes,
                     (unsigned long long)page->reader.n_lines, page->rules->n_series,
                     STR_ARG(first));
}

enum status scrape_page_end(struct scrape_page *page, uint64_t asked_ns,
                            struct scrape_history *history, struct endpoint_load *out,
                            struct attribute_report *attributes, struct error *err) {
    bool any = false, taken[N_SCRAPE_METRICS + ATTRIBUTES_MAX] = {false};
    series_reader_finish(&page->reader);
    *out = (struct endpoint_load){0};
    *attributes = (struct attribute_report){0};
    for (size_t i = 0; i < page->rules->n; i++) {
        const struct scrape_rule *rule = &page->rules->items[i];
        double value = page->found[i].value;
        size_t into = rule->into + (rule->into == SCRAPE_ATTRIBUTE ? rule->attribute : 0);
        if (!page->found[i].seen || taken[into]) {
            continue;
        }
        any = taken[into] = true;
        if (rule->rate && !rate_of(history, i, asked_ns, &value)) {
            continue;
        }
        value *= rule->factor != 0 ? rule->factor : 1;
        value = rule->divisor != 0 ? value / rule->divisor : value;
        if (rule->into == SCRAPE_ATTRIBUTE) {
            attributes->known |= UINT32_C(1) << rule->attribute;
            attributes->values[rule->attribute] = value;
        } else {
            out->known |= put_value(page, rule->into, value, out);
        }
    }
    return any ? ST_OK : nothing_there(page, err);
}
