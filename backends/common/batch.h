/* Executes a batch: one run over all requests that are not cancelled, and one over each half when
 * that fails, down to single requests. */
#ifndef SLUICE_COMMON_BATCH_H
#define SLUICE_COMMON_BATCH_H

#include <stddef.h>

#include "sluice/backend.h"

/* Runs requests as one. Returns: SLUICE_OK when all were answered, otherwise none was. */
typedef sluice_status (*batch_run)(void *runner, const sluice_request *const *requests, size_t n,
                                   sluice_error *error);

/* Per instance; initialized with {.host, .run, .can_share, .runner}. */
struct batch {
    const sluice_host *host;
    batch_run run;
    /* Returns: whether the requests can be one run. NULL: always. */
    int (*can_share)(const void *runner, const sluice_request *const *requests, size_t n);
    void *runner;
    const sluice_request **live; /* the requests of a batch that are not cancelled */
    size_t n_live;               /* capacity of `live` */
};

/* Implements `execute` of sluice_backend: every request is answered on return. A batch that
 * fails is halved until the request that does not fit the model fails by itself; requests that
 * cannot share a run have one each. */
void batch_execute(struct batch *batch, const sluice_request *const *requests, size_t n);
void batch_fini(struct batch *batch);

/* Returns: the rows of all requests. */
uint64_t batch_rows(const sluice_request *const *requests, size_t n);

#endif
