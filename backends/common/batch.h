/* Executes a batch: its inputs as contiguous pieces, the output values of a run split between the
 * requests, and the runs: one over all requests that are not cancelled, and one over each half when
 * that fails, down to single requests. */
#ifndef SLUICE_COMMON_BATCH_H
#define SLUICE_COMMON_BATCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/signature.h"
#include "sluice/backend.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The inputs of a batch, each as one contiguous piece: the request's own bytes, or a copy in memory
 * that is reused between batches. Initialized with {0}. */
struct gather {
    unsigned char *bytes;
    size_t n_bytes;
    size_t n_used; /* bytes used by the gathered inputs */
};

void gather_fini(struct gather *gather);
/* Frees memory that an unusually large batch needed. */
void gather_trim(struct gather *gather);

/* Reserves memory for every non-BYTES input of the batch that is not contiguous. The requests have
 * the same inputs. Returns: 0 when out of memory. */
int gather_begin(struct gather *gather, const sluice_request *const *requests, size_t n_requests);
/* Input `index` of all requests in order, *n_bytes long. Returns: an address that is never NULL:
 * the request's own memory, or the gather's, valid until the next gather_begin. */
const void *gather_input(struct gather *gather, const sluice_request *const *requests,
                         size_t n_requests, size_t index, size_t *n_bytes);
/* Returns: whether the address is in memory that the next batch overwrites. */
int gather_holds(const struct gather *gather, const void *at);

/* Returns: the dimensions of input `index` for the whole batch, possibly stored in `dims`. Shapes
 * differ in the first dimension only. */
const int64_t *gather_dims(const sluice_request *const *requests, size_t n_requests, size_t index,
                           int64_t dims[MAX_RANK]);

/* ---- outputs --------------------------------------------------------------------------------- */

/* An output value of a run. */
struct result {
    void *value;          /* the library's, for free_values */
    unsigned char *block; /* a copy of the bytes, freed with the results; NULL: none */
    sluice_datatype datatype;
    size_t n_element_bytes; /* 0: BYTES */
    int64_t dims[MAX_RANK]; /* dims[0] counts rows when the batch is split */
    size_t rank;
    const unsigned char *next; /* bytes not assigned to a request yet */
    size_t n_bytes;            /* from `next` on */
    size_t n_all_bytes;        /* total */
    size_t n_row_elements;     /* per row, when the batch is split */
};

/* The output values of a run, which live until the last answer made of them is released. Shared by
 * the answers of a batch; one allocation. */
struct results {
    void (*free_values)(struct results *results); /* returns the values to the library */
    const void *owner;                            /* for free_values */
    void *owner_ref;                              /* for free_values */
    atomic_size_t n_refs;
    size_t n;
    struct result items[];
};

/* Zeroed, for `n` outputs of `n_requests` requests, with one reference for each request. Returns:
 * NULL when out of memory. */
struct results *results_new(size_t n, size_t n_requests);
/* Frees results before anything was answered. */
void results_free(struct results *results);
/* Drops a reference; a `release` function of the interface. Thread: any. */
void results_release(void *cookie);

/* Computes the number of elements of a result. Returns: 0 on overflow. */
int result_count(const struct result *result, size_t *count);
/* Copies the result's bytes, when their memory is reused before they are sent. */
sluice_status result_copy_bytes(struct result *result, sluice_error *error);
/* Points the result at its data; `data` may be NULL for an empty tensor. Bytes in `gather` are
 * copied, because it is reused before the answers are sent. */
sluice_status result_set_data(struct result *result, const void *data, size_t count,
                              const struct gather *gather, sluice_error *error);
/* Checks that the result has `n_rows` rows and can be split between requests. `name`: for the error
 * text. */
sluice_status result_split(struct result *result, const char *name, uint64_t n_rows,
                           sluice_error *error);

/* The outputs that a batch wants, and memory to return them; per instance. */
struct output_map {
    uint32_t *slots;      /* by index of the model's output: its position in `chosen`, or NO_SLOT */
    uint32_t *chosen;     /* indices of the model's outputs */
    size_t n_chosen;      /* of the current batch */
    size_t n_outputs;     /* of the model */
    sluice_output *taken; /* one request's part of the results */
    sluice_output *outputs; /* in the order of its response */
};

/* The slot of an output that is not wanted. */
#define NO_SLOT UINT32_MAX

/* Returns: 0 when out of memory; output_map_fini frees what was allocated. */
int output_map_init(struct output_map *output_map, size_t n_outputs);
void output_map_fini(struct output_map *output_map);
/* Selects every output that any request wants, once. */
void output_map_select(struct output_map *output_map, const sluice_request *const *requests,
                       size_t n_requests);
/* Answers every request with its part of the results, whose items are the chosen outputs, and with
 * a reference on them. */
void output_map_respond(struct output_map *output_map, const sluice_host *host,
                        struct results *results, const sluice_request *const *requests,
                        size_t n_requests);

/* ---- runs ------------------------------------------------------------------------------------ */

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
