/* What a worker names is opened once for the model; a number is the place in a list plus one. */
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
    for (size_t i = 0; i < metrics->n_series; i++) {
        metrics->host->metric_close(metrics->series[i]);
    }
    for (size_t i = 0; i < metrics->n_families; i++) {
        metrics->host->metric_family_close(metrics->families[i]);
    }
    free(metrics->series);
    free(metrics->families);
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
    char *copy = malloc(text.n_bytes + 1);
    if (copy) {
        memcpy(copy, text.n_bytes > 0 ? text.ptr : "", text.n_bytes);
        copy[text.n_bytes] = '\0';
    }
    return copy;
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
 * *is_new is 0. The lock is held. */
static uint32_t keep(void ***items, size_t *n, void *item, int *is_new, sluice_error *error) {
    *is_new = 0;
    for (size_t i = 0; i < *n; i++) {
        if ((*items)[i] == item) {
            return (uint32_t)i + 1;
        }
    }
    if (*n >= METRICS_MAX) {
        error_set(error, SLUICE_INVALID_ARGUMENT, "the model has %d metrics already",
                  (int)METRICS_MAX);
        return 0;
    }
    void **grown = realloc(*items, (*n + 1) * sizeof(*grown));
    if (!grown) {
        error_no_memory(error, "a metric");
        return 0;
    }
    *items = grown;
    grown[(*n)++] = item;
    *is_new = 1;
    return (uint32_t)*n;
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
        pthread_mutex_lock(&metrics->lock);
        number = keep((void ***)&metrics->families, &metrics->n_families, family, &is_new, error);
        pthread_mutex_unlock(&metrics->lock);
        if (!is_new) {
            metrics->host->metric_family_close(family);
        }
    }
    free(name);
    free(help);
    return number;
}

static sluice_metric_family *find_family(struct metrics *metrics, uint32_t number) {
    pthread_mutex_lock(&metrics->lock);
    sluice_metric_family *family =
        number > 0 && number <= metrics->n_families ? metrics->families[number - 1] : NULL;
    pthread_mutex_unlock(&metrics->lock);
    return family;
}

uint32_t metrics_take_series(struct metrics *metrics, struct wire_reader *reader,
                             sluice_error *error) {
    sluice_metric_family *family = find_family(metrics, wire_read_u32(reader));
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
        pthread_mutex_lock(&metrics->lock);
        number = keep((void ***)&metrics->series, &metrics->n_series, metric, &is_new, error);
        pthread_mutex_unlock(&metrics->lock);
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
    uint32_t number = wire_read_u32(reader);
    pthread_mutex_lock(&metrics->lock);
    sluice_metric *metric =
        number > 0 && number <= metrics->n_series ? metrics->series[number - 1] : NULL;
    pthread_mutex_unlock(&metrics->lock);
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
