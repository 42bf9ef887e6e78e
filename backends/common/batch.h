/* A batch on its way: those who still wait, one run over all of them, each alone where that
 * fails. */
#ifndef SLUICE_COMMON_BATCH_H
#define SLUICE_COMMON_BATCH_H

#include <stddef.h>

#include "sluice/backend.h"

/* What runs requests as one. Returns: SLUICE_OK when all were answered, else none was. */
typedef sluice_status (*batch_run)(void *runner, const sluice_request *const *requests, size_t n,
                                   sluice_error *error);

/* Of an instance; {.host, .run, .can_share, .runner} to begin with. */
struct batch {
    const sluice_host *host;
    batch_run run;
    /* May these be one run? NULL: always. */
    int (*can_share)(const void *runner, const sluice_request *const *requests, size_t n);
    void *runner;
    const sluice_request **live; /* the requests of a batch that somebody still waits for */
    size_t n_live;               /* room in `live` */
};

/* The function `execute` of sluice_backend: every request has its answer when it returns. When the
 * batch can't be run as one, each request is run alone, so that one that does not fit the model
 * fails by itself. */
void batch_execute(struct batch *batch, const sluice_request *const *requests, size_t n);
void batch_fini(struct batch *batch);

/* Rows of all requests. */
uint64_t batch_rows(const sluice_request *const *requests, size_t n);

#endif
