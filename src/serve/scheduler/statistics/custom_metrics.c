/* Families and series in lists: there are few, and they are looked up when they are opened. One
 * lock protects all. The registry is a global of the process, as that of core/base/metric: host
 * functions have no context. */
#include "serve/scheduler/statistics/custom_metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "core/base/metric/metric.h"
#include "core/base/utf8.h"

struct sluice_metric {
    struct sluice_metric_family *family;
    char *labels; /* as on the page */
    size_t refs;
    double value;   /* of a histogram: the sum */
    double *bounds; /* of a histogram */
    uint64_t *counts;
    size_t n_bounds; /* counts has one more */
    TAILQ_ENTRY(sluice_metric) link;
};

struct sluice_metric_family {
    char *name, *help; /* `help` as on the page */
    sluice_metric_kind kind;
    size_t refs; /* each series has one */
    TAILQ_HEAD(, sluice_metric) series;
    TAILQ_ENTRY(sluice_metric_family) link;
};

static struct {
    pthread_mutex_t lock;
    TAILQ_HEAD(, sluice_metric_family) families;
    size_t n_families, n_lines;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER,
              .families = TAILQ_HEAD_INITIALIZER(registry.families)};

static const char *const kind_names[] = {
    [SLUICE_METRIC_COUNTER] = "counter",
    [SLUICE_METRIC_GAUGE] = "gauge",
    [SLUICE_METRIC_HISTOGRAM] = "histogram",
};

__attribute__((format(printf, 2, 3))) static sluice_status refuse(sluice_error *error,
                                                                  const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return SLUICE_INVALID_ARGUMENT;
}

static sluice_status no_memory(sluice_error *error) {
    snprintf(error->text, sizeof(error->text), "out of memory for a metric");
    return SLUICE_NO_MEMORY;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Letters, digits and "_", and where `colon` ":"; no digit first. */
static bool is_name(const char *name, bool colon) {
    size_t n = name ? strlen(name) : 0;
    bool good = n > 0 && n <= CUSTOM_METRIC_MAX_NAME_BYTES && !(name[0] >= '0' && name[0] <= '9');
    for (size_t i = 0; i < n && good; i++) {
        char c = name[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || (colon && c == ':');
    }
    return good;
}

/* Returns: whether `name` is `family` with one of the endings that samples of a histogram have. */
static bool is_sample_of(const char *name, const char *family) {
    static const char *const endings[] = {"_bucket", "_sum", "_count"};
    size_t n = strlen(family);
    if (strncmp(name, family, n) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (strcmp(name + n, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_of_server(const char *name) {
    static const char *const prefixes[] = {"sluice_", "nv_", "process_"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* A text as a help line has it: "\" and line ends escaped. */
static char *escape_help(const char *help) {
    char *out = malloc(2 * strlen(help) + 1);
    size_t n = 0;
    for (size_t i = 0; out && help[i]; i++) {
        if (help[i] == '\\' || help[i] == '\n') {
            out[n++] = '\\';
        }
        out[n++] = help[i];
        out[n - 1] = help[i] == '\n' ? 'n' : help[i];
    }
    if (out) {
        out[n] = '\0';
    }
    return out;
}

/* ---- families -------------------------------------------------------------------------------- */

static void family_unref(struct sluice_metric_family *family) {
    if (--family->refs == 0) {
        TAILQ_REMOVE(&registry.families, family, link);
        registry.n_families--;
        free(family->name);
        free(family->help);
        free(family);
    }
}

static sluice_status check_family(const char *name, const char *help, sluice_metric_kind kind,
                                  sluice_error *error) {
    if (!is_name(name, true)) {
        return refuse(error,
                      "metric family \"%.80s\": a name has letters, digits, \"_\" and \":\", no "
                      "digit first, and at most %d bytes",
                      name ? name : "", CUSTOM_METRIC_MAX_NAME_BYTES);
    }
    if (is_of_server(name)) {
        return refuse(error,
                      "metric family %s: names that begin with sluice_, nv_ or process_ are the "
                      "server's own",
                      name);
    }
    if ((unsigned)kind > SLUICE_METRIC_HISTOGRAM) {
        return refuse(error, "metric family %s: %d is no kind", name, (int)kind);
    }
    size_t n = help ? strlen(help) : 0;
    if (!help || n > CUSTOM_METRIC_MAX_TEXT_BYTES || !utf8_is_valid(help, n)) {
        return refuse(error, "metric family %s: a description is UTF-8 of at most %d bytes", name,
                      CUSTOM_METRIC_MAX_TEXT_BYTES);
    }
    return SLUICE_OK;
}

/* Finds the family, or what its name collides with. The lock is held. */
static sluice_status find_family(const char *name, sluice_metric_kind kind,
                                 struct sluice_metric_family **found, sluice_error *error) {
    struct sluice_metric_family *other;
    *found = NULL;
    TAILQ_FOREACH(other, &registry.families, link) {
        if (strcmp(other->name, name) == 0) {
            *found = other;
            return other->kind == kind
                       ? SLUICE_OK
                       : refuse(error, "metric family %s is a %s already, and cannot be a %s", name,
                                kind_names[other->kind], kind_names[kind]);
        }
        if ((other->kind == SLUICE_METRIC_HISTOGRAM && is_sample_of(name, other->name)) ||
            (kind == SLUICE_METRIC_HISTOGRAM && is_sample_of(other->name, name))) {
            return refuse(error, "metric family %s: family %s has samples of the same name", name,
                          other->name);
        }
    }
    return SLUICE_OK;
}

static struct sluice_metric_family *family_new(const char *name, const char *help,
                                               sluice_metric_kind kind) {
    struct sluice_metric_family *family = calloc(1, sizeof(*family));
    if (!family) {
        return NULL;
    }
    family->name = strdup(name);
    family->help = escape_help(help);
    family->kind = kind;
    TAILQ_INIT(&family->series);
    if (!family->name || !family->help) {
        free(family->name);
        free(family->help);
        free(family);
        return NULL;
    }
    return family;
}

sluice_status custom_family_open(const char *name, const char *help, sluice_metric_kind kind,
                                 sluice_metric_family **family, sluice_error *error) {
    *family = NULL;
    sluice_status status = check_family(name, help, kind, error);
    if (status != SLUICE_OK) {
        return status;
    }
    pthread_mutex_lock(&registry.lock);
    status = find_family(name, kind, family, error);
    if (status == SLUICE_OK && !*family) {
        if (registry.n_families >= CUSTOM_METRIC_MAX_FAMILIES) {
            status = refuse(error,
                            "metric family %s: the models have %d families together, the most that "
                            "are allowed",
                            name, CUSTOM_METRIC_MAX_FAMILIES);
        } else if (!(*family = family_new(name, help, kind))) {
            status = no_memory(error);
        } else {
            TAILQ_INSERT_TAIL(&registry.families, *family, link);
            registry.n_families++;
        }
    }
    if (status != SLUICE_OK || !*family) {
        *family = NULL;
    } else {
        (*family)->refs++;
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

void custom_family_close(sluice_metric_family *family) {
    pthread_mutex_lock(&registry.lock);
    family_unref(family);
    pthread_mutex_unlock(&registry.lock);
}

/* ---- series ---------------------------------------------------------------------------------- */

static size_t lines_of(const struct sluice_metric_family *family, size_t n_bounds) {
    return family->kind == SLUICE_METRIC_HISTOGRAM ? n_bounds + 3 : 1;
}

static sluice_status check_labels(const sluice_metric_family *family, const sluice_label *labels,
                                  size_t n_labels, sluice_error *error) {
    size_t n_bytes = 0;
    if (n_labels > CUSTOM_METRIC_MAX_LABELS) {
        return refuse(error, "metric %s: %zu labels, at most %d are allowed", family->name,
                      n_labels, CUSTOM_METRIC_MAX_LABELS);
    }
    for (size_t i = 0; i < n_labels; i++) {
        const char *name = labels[i].name, *value = labels[i].value;
        if (!is_name(name, false) || strncmp(name, "__", 2) == 0 ||
            (family->kind == SLUICE_METRIC_HISTOGRAM && strcmp(name, "le") == 0)) {
            return refuse(error, "metric %s: \"%.80s\" is no name of a label", family->name,
                          name ? name : "");
        }
        size_t n = value ? strlen(value) : 0;
        n_bytes += n;
        if (!value || n_bytes > CUSTOM_METRIC_MAX_TEXT_BYTES || !utf8_is_valid(value, n)) {
            return refuse(error,
                          "metric %s, label %s: values of labels are UTF-8 of at most %d bytes "
                          "together",
                          family->name, name, CUSTOM_METRIC_MAX_TEXT_BYTES);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(labels[j].name, name) == 0) {
                return refuse(error, "metric %s: there are two labels %s", family->name, name);
            }
        }
    }
    return SLUICE_OK;
}

static sluice_status check_bounds(const sluice_metric_family *family, const double *bounds,
                                  size_t n_bounds, sluice_error *error) {
    if (family->kind != SLUICE_METRIC_HISTOGRAM) {
        return n_bounds == 0 ? SLUICE_OK
                             : refuse(error, "metric %s: a %s has no buckets", family->name,
                                      kind_names[family->kind]);
    }
    if (n_bounds == 0 || n_bounds > CUSTOM_METRIC_MAX_BOUNDS) {
        return refuse(error, "metric %s: a histogram has 1 to %d buckets, got %zu", family->name,
                      CUSTOM_METRIC_MAX_BOUNDS, n_bounds);
    }
    for (size_t i = 0; i < n_bounds; i++) {
        if (!isfinite(bounds[i]) || (i > 0 && bounds[i] <= bounds[i - 1])) {
            return refuse(error, "metric %s: buckets must be finite and increase, number %zu is %g",
                          family->name, i, bounds[i]);
        }
    }
    return SLUICE_OK;
}

static int compare_labels(const void *a, const void *b) {
    return strcmp((*(const sluice_label *const *)a)->name, (*(const sluice_label *const *)b)->name);
}

/* The labels as on the page, in the order of their names. Returns: NULL when out of memory. */
static char *print_labels(const sluice_label *labels, size_t n_labels) {
    const sluice_label *sorted[CUSTOM_METRIC_MAX_LABELS];
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    if (!arena) {
        return NULL;
    }
    for (size_t i = 0; i < n_labels; i++) {
        sorted[i] = &labels[i];
    }
    qsort(sorted, n_labels, sizeof(sorted[0]), compare_labels);
    buf_init(&out, arena, 64);
    for (size_t i = 0; i < n_labels; i++) {
        metric_label_add(&out, sorted[i]->name, str_of(sorted[i]->value));
    }
    buf_add_char(&out, '\0');
    char *text = out.failed ? NULL : strdup(out.data);
    arena_free(arena);
    return text;
}

static void metric_free(struct sluice_metric *metric) {
    free(metric->labels);
    free(metric->bounds);
    free(metric->counts);
    free(metric);
}

/* Owns: `labels`, in any case. */
static struct sluice_metric *metric_new(struct sluice_metric_family *family, char *labels,
                                        const double *bounds, size_t n_bounds) {
    struct sluice_metric *metric = calloc(1, sizeof(*metric));
    if (!metric) {
        free(labels);
        return NULL;
    }
    *metric = (struct sluice_metric){.family = family, .labels = labels, .n_bounds = n_bounds};
    if (n_bounds > 0) {
        metric->bounds = malloc(n_bounds * sizeof(*bounds));
        metric->counts = calloc(n_bounds + 1, sizeof(*metric->counts));
        if (!metric->bounds || !metric->counts) {
            metric_free(metric);
            return NULL;
        }
        memcpy(metric->bounds, bounds, n_bounds * sizeof(*bounds));
    }
    return metric;
}

static struct sluice_metric *find_metric(struct sluice_metric_family *family, const char *labels) {
    struct sluice_metric *metric;
    TAILQ_FOREACH(metric, &family->series, link) {
        if (strcmp(metric->labels, labels) == 0) {
            return metric;
        }
    }
    return NULL;
}

/* Makes a series. The lock is held. */
static sluice_status add_metric(struct sluice_metric_family *family, char *labels,
                                const double *bounds, size_t n_bounds, struct sluice_metric **out,
                                sluice_error *error) {
    size_t n_lines = lines_of(family, n_bounds);
    if (registry.n_lines + n_lines > CUSTOM_METRIC_MAX_LINES) {
        free(labels);
        return refuse(error,
                      "metric %s: the models' metrics have %zu lines on the page together, at most "
                      "%d are allowed",
                      family->name, registry.n_lines, CUSTOM_METRIC_MAX_LINES);
    }
    *out = metric_new(family, labels, bounds, n_bounds);
    if (!*out) {
        return no_memory(error);
    }
    TAILQ_INSERT_TAIL(&family->series, *out, link);
    family->refs++;
    registry.n_lines += n_lines;
    return SLUICE_OK;
}

sluice_status custom_metric_open(sluice_metric_family *family, const sluice_label *labels,
                                 size_t n_labels, const double *bounds, size_t n_bounds,
                                 sluice_metric **metric, sluice_error *error) {
    *metric = NULL;
    sluice_status status = check_labels(family, labels, n_labels, error);
    status = status == SLUICE_OK ? check_bounds(family, bounds, n_bounds, error) : status;
    char *text = status == SLUICE_OK ? print_labels(labels, n_labels) : NULL;
    if (!text) {
        return status == SLUICE_OK ? no_memory(error) : status;
    }
    pthread_mutex_lock(&registry.lock);
    struct sluice_metric *found = find_metric(family, text);
    if (!found) {
        status = add_metric(family, text, bounds, n_bounds, &found, error);
    } else {
        free(text);
        if (found->n_bounds != n_bounds ||
            (n_bounds > 0 && memcmp(found->bounds, bounds, n_bounds * sizeof(*bounds)) != 0)) {
            status = refuse(error, "metric %s: it has other buckets already", family->name);
        }
    }
    if (status == SLUICE_OK && found) {
        found->refs++;
        *metric = found;
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

void custom_metric_close(sluice_metric *metric) {
    pthread_mutex_lock(&registry.lock);
    if (--metric->refs == 0) {
        struct sluice_metric_family *family = metric->family;
        TAILQ_REMOVE(&family->series, metric, link);
        registry.n_lines -= lines_of(family, metric->n_bounds);
        metric_free(metric);
        family_unref(family);
    }
    pthread_mutex_unlock(&registry.lock);
}

/* ---- values ---------------------------------------------------------------------------------- */

static const char *unfit(const sluice_metric *metric, sluice_metric_change change, double value) {
    sluice_metric_kind kind = metric->family->kind;
    switch (change) {
    case SLUICE_METRIC_INCREMENT:
        return kind == SLUICE_METRIC_HISTOGRAM ? "a histogram cannot be incremented"
               : kind == SLUICE_METRIC_COUNTER && !(value >= 0 && isfinite(value))
                   ? "a counter is incremented by finite values that are not negative"
                   : NULL;
    case SLUICE_METRIC_SET:
        return kind == SLUICE_METRIC_GAUGE ? NULL : "only a gauge can be set";
    case SLUICE_METRIC_OBSERVE:
        return kind != SLUICE_METRIC_HISTOGRAM ? "only a histogram observes values"
               : isfinite(value)               ? NULL
                                               : "a histogram observes finite values";
    }
    return "there is no such change";
}

static void observe(sluice_metric *metric, double value) {
    size_t i = 0;
    while (i < metric->n_bounds && value > metric->bounds[i]) {
        i++;
    }
    metric->counts[i]++;
    metric->value += value;
}

sluice_status custom_metric_change(sluice_metric *metric, sluice_metric_change change, double value,
                                   sluice_error *error) {
    const char *reason = unfit(metric, change, value);
    if (reason) {
        return refuse(error, "metric %s: %s, got %g", metric->family->name, reason, value);
    }
    pthread_mutex_lock(&registry.lock);
    if (change == SLUICE_METRIC_OBSERVE) {
        observe(metric, value);
    } else {
        metric->value = change == SLUICE_METRIC_SET ? value : metric->value + value;
    }
    pthread_mutex_unlock(&registry.lock);
    return SLUICE_OK;
}

sluice_status custom_metric_value(sluice_metric *metric, double *value, sluice_error *error) {
    *value = 0;
    if (metric->family->kind == SLUICE_METRIC_HISTOGRAM) {
        return refuse(error, "metric %s: a histogram has no single value", metric->family->name);
    }
    pthread_mutex_lock(&registry.lock);
    *value = metric->value;
    pthread_mutex_unlock(&registry.lock);
    return SLUICE_OK;
}

/* ---- the page -------------------------------------------------------------------------------- */

void custom_metrics_print(struct metric_text *text) {
    static const enum metric_kind kinds[] = {
        [SLUICE_METRIC_COUNTER] = METRIC_KIND_COUNTER,
        [SLUICE_METRIC_GAUGE] = METRIC_KIND_GAUGE,
        [SLUICE_METRIC_HISTOGRAM] = METRIC_KIND_HISTOGRAM,
    };
    struct sluice_metric_family *family;
    struct sluice_metric *metric;
    pthread_mutex_lock(&registry.lock);
    TAILQ_FOREACH(family, &registry.families, link) {
        if (TAILQ_EMPTY(&family->series)) {
            continue;
        }
        metric_text_begin(text, str_of(family->name), kinds[family->kind], str_of(family->help));
        TAILQ_FOREACH(metric, &family->series, link) {
            struct str labels = str_of(metric->labels);
            if (family->kind == SLUICE_METRIC_HISTOGRAM) {
                metric_text_histogram(text, labels, metric->bounds, metric->n_bounds,
                                      metric->counts, metric->value);
            } else {
                metric_text_f64(text, labels, metric->value);
            }
        }
    }
    text->name = STR(""); /* it may be freed now */
    pthread_mutex_unlock(&registry.lock);
}
