/* Metrics that a model defines (pb_utils.MetricFamily). They are the model's, and not a worker's:
 * they stay when a worker is started again, until the model is closed, and the instances share
 * them. A worker knows them by numbers. */
#ifndef SLUICE_PYTHON_METRICS_H
#define SLUICE_PYTHON_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "sluice/backend.h"

struct wire_reader;

enum { METRICS_MAX = 1000 }; /* families, and series, of a model; the host has limits for all */

/* What was opened; a number is the place plus one. */
struct metrics_list {
    void **items;
    size_t n;
};

struct metrics {
    const sluice_host *host;
    pthread_mutex_t lock;
    struct metrics_list families, series; /* of sluice_metric_family and sluice_metric */
};

void metrics_init(struct metrics *metrics, const sluice_host *host);
/* Closes all. */
void metrics_fini(struct metrics *metrics);

/* Thread: any, for the following. */

/* Reads the rest of FAMILY. Returns: the family's number; 0 with `error`. A message that is not
 * well-formed makes the reader fail. */
uint32_t metrics_take_family(struct metrics *metrics, struct wire_reader *reader,
                             sluice_error *error);
/* The same of SERIES. */
uint32_t metrics_take_series(struct metrics *metrics, struct wire_reader *reader,
                             sluice_error *error);
/* Reads CHANGE. */
void metrics_take_change(struct metrics *metrics, struct wire_reader *reader);
/* Reads the rest of VALUE. Returns: 0 with `error`. */
int metrics_take_value(struct metrics *metrics, struct wire_reader *reader, double *value,
                       sluice_error *error);

#endif
