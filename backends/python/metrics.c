/* What a worker names is opened once for the model. */
#include "python/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "python/wire.h"

void metrics_init(struct metrics *metrics, const sluice_host *host) {
    *metrics = (struct metrics){.host = host};
    pthread_mutex_init(&metrics->lock, NULL);
}

void metrics_fini(struct metrics *metrics) {
    for (size_t i = 0; i < metrics->series.n; i++) {
        metrics->host->metric_close(metrics->series.items[i]);
    }
    for (size_t i = 0; i < metrics->families.n; i++) {
        metrics->host->metric_family_close(metrics->families.items[i]);
    }
    free(metrics->series.items);
    free(metrics->families.items);
    pthread_mutex_destroy(&metrics->lock);
}

static int has_functions(const struct metrics *metrics, sluice_error *error) {
    size_t needed = offsetof(sluice_host, metric_value) + sizeof(metrics->host->metric_value);
    if (metrics->host->size < needed) {
        error_set(error, SLUICE_UNSUPPORTED, "this server has no metrics of models");
        return 0;
    }
    return 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A text of the message. Returns: NULL when out of memory, or it is not a text. */
static char *read_text(struct wire_reader *reader) {
    struct wire_text text = wire_read_text(reader);
    if (reader->failed || (text.n_bytes > 0 && memchr(text.ptr, 0, text.n_bytes))) {
        reader->failed = 1;
        return NULL;
    }
    return wire_text_copy(text);
}

static double read_f64(struct wire_reader *reader) {
    uint64_t bits = wire_read_u64(reader);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

struct labels {
    sluice_label *items;
    size_t n;
};

static void labels_free(struct labels *labels) {
    for (size_t i = 0; i < labels->n; i++) {
        free((void *)labels->items[i].name);
        free((void *)labels->items[i].value);
    }
    free(labels->items);
}

/* Returns: 0 when out of memory, or the message is not well-formed. */
static int read_labels(struct wire_reader *reader, struct labels *labels) {
    uint32_t n = wire_read_count(reader, 2 * sizeof(uint32_t));
    *labels = (struct labels){calloc((size_t)n + 1, sizeof(sluice_label)), 0};
    if (!labels->items) {
        return 0;
    }
    for (; labels->n < n; labels->n++) {
        sluice_label *label = &labels->items[labels->n];
        label->name = read_text(reader);
        label->value = read_text(reader);
        if (!label->name || !label->value) {
            labels->n++; /* one of them may be there */
            return 0;
        }
    }
    return 1;
}

static double *read_bounds(struct wire_reader *reader, size_t *n) {
    *n = wire_read_count(reader, sizeof(double));
    double *bounds = calloc(*n + 1, sizeof(*bounds));
    for (size_t i = 0; bounds && i < *n; i++) {
        bounds[i] = read_f64(reader);
    }
    return bounds;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The number of what was opened: that of before, where the model has it already. Returns: 0 with
 * `error` when there are too many, or memory is out; `item` is the caller's then, and where
 * *is_new is 0. */
static uint32_t keep(struct metrics *metrics, struct metrics_list *list, void *item, int *is_new,
                     sluice_error *error) {
    uint32_t number = 0;
    *is_new = 0;
    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i < list->n && number == 0; i++) {
        number = list->items[i] == item ? (uint32_t)i + 1 : 0;
    }
    if (number == 0 && list->n >= METRICS_MAX) {
        error_set(error, SLUICE_INVALID_ARGUMENT, "the model has %d metrics already",
                  (int)METRICS_MAX);
    } else if (number == 0) {
        void **grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
        if (grown) {
            list->items = grown;
            grown[list->n++] = item;
            number = (uint32_t)list->n;
            *is_new = 1;
        } else {
            error_no_memory(error, "a metric");
        }
    }
    pthread_mutex_unlock(&metrics->lock);
    return number;
}

/* Returns: NULL when nothing has this number. */
static void *find(struct metrics *metrics, const struct metrics_list *list, uint32_t number) {
    pthread_mutex_lock(&metrics->lock);
    void *item = number > 0 && number <= list->n ? list->items[number - 1] : NULL;
    pthread_mutex_unlock(&metrics->lock);
    return item;
}

uint32_t metrics_take_family(struct metrics *metrics, struct wire_reader *reader,
                             sluice_error *error) {
    uint8_t kind = wire_read_u8(reader);
    char *name = read_text(reader), *help = read_text(reader);
    sluice_metric_family *family = NULL;
    uint32_t number = 0;
    int is_new = 0;
    error_no_memory(error, "a metric");
    if (name && help && !reader->failed && has_functions(metrics, error) &&
        metrics->host->metric_family_open(name, help, (sluice_metric_kind)kind, &family, error) ==
            SLUICE_OK) {
        number = keep(metrics, &metrics->families, family, &is_new, error);
        if (!is_new) {
            metrics->host->metric_family_close(family);
        }
    }
    free(name);
    free(help);
    return number;
}

uint32_t metrics_take_series(struct metrics *metrics, struct wire_reader *reader,
                             sluice_error *error) {
    sluice_metric_family *family = find(metrics, &metrics->families, wire_read_u32(reader));
    struct labels labels;
    size_t n_bounds = 0;
    sluice_metric *metric = NULL;
    uint32_t number = 0;
    int is_new = 0, ok = read_labels(reader, &labels);
    double *bounds = ok ? read_bounds(reader, &n_bounds) : NULL;
    error_no_memory(error, "a metric");
    reader->failed = reader->failed || !family;
    if (bounds && !reader->failed &&
        metrics->host->metric_open(family, labels.items, labels.n, bounds, n_bounds, &metric,
                                   error) == SLUICE_OK) {
        number = keep(metrics, &metrics->series, metric, &is_new, error);
        if (!is_new) {
            metrics->host->metric_close(metric);
        }
    }
    labels_free(&labels);
    free(bounds);
    return number;
}

/* ---- values ---------------------------------------------------------------------------------- */

static sluice_metric *find_series(struct metrics *metrics, struct wire_reader *reader) {
    sluice_metric *metric = find(metrics, &metrics->series, wire_read_u32(reader));
    reader->failed = reader->failed || !metric;
    return metric;
}

void metrics_take_change(struct metrics *metrics, struct wire_reader *reader) {
    sluice_metric *metric = find_series(metrics, reader);
    uint8_t change = wire_read_u8(reader);
    double value = read_f64(reader);
    sluice_error error;
    if (!reader->failed && metrics->host->metric_change(metric, (sluice_metric_change)change, value,
                                                        &error) != SLUICE_OK) {
        reader->failed = 1; /* the worker has checked it */
    }
}

int metrics_take_value(struct metrics *metrics, struct wire_reader *reader, double *value,
                       sluice_error *error) {
    sluice_metric *metric = find_series(metrics, reader);
    *value = 0;
    return !reader->failed && metrics->host->metric_value(metric, value, error) == SLUICE_OK;
}
