/* The output values of a run, which live until the last answer made of them is released. */
#ifndef SLUICE_COMMON_RESULTS_H
#define SLUICE_COMMON_RESULTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gather.h"
#include "sluice/backend.h"

enum { RESULT_MAX_RANK = 64 };

struct result {
    void *value;          /* the library's, for free_values */
    unsigned char *block; /* a copy of the bytes, freed with the results; NULL: none */
    sluice_datatype datatype;
    size_t n_element_bytes;        /* 0: BYTES */
    int64_t dims[RESULT_MAX_RANK]; /* dims[0] counts rows when the batch is split */
    size_t rank;
    const unsigned char *next; /* bytes not assigned to a request yet */
    size_t n_bytes;            /* from `next` on */
    size_t n_all_bytes;        /* total */
    size_t n_row_elements;     /* per row, when the batch is split */
};

/* Shared by the answers of a batch; one allocation. */
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

#endif
