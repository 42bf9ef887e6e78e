/* What a run gave: a library's output values, seen as bytes, until the last answer made of them has
 * been sent. */
#ifndef SLUICE_COMMON_RESULTS_H
#define SLUICE_COMMON_RESULTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gather.h"
#include "sluice/backend.h"

enum { RESULT_MAX_RANK = 64 };

struct result {
    void *value;          /* the library's, for `drop` */
    unsigned char *block; /* a copy of the bytes, freed with the results; else NULL */
    sluice_datatype datatype;
    size_t n_element_bytes;        /* 0: BYTES */
    int64_t dims[RESULT_MAX_RANK]; /* dims[0] counts rows when the batch is split */
    size_t rank;
    const unsigned char *next; /* bytes that were not given to a request yet */
    size_t n_bytes;            /* from `next` on */
    size_t n_all_bytes;        /* of the whole */
    size_t n_row_elements;     /* in one row; when the batch is split */
};

/* Shared by the answers of a batch; one allocation. */
struct results {
    void (*free_values)(struct results *results); /* gives the values back to the library */
    const void *owner;                            /* for `drop` */
    void *owner_ref;                              /* the same */
    atomic_size_t n_refs;
    size_t n;
    struct result items[];
};

/* Zeroed, for `n` outputs of `n_requests` requests, each of which gets a reference. Returns: NULL
 * when there is no memory. */
struct results *results_new(size_t n, size_t n_requests);
/* Before anything was answered. */
void results_free(struct results *results);
/* Drops a reference; a `release` of the interface. Thread: any. */
void results_release(void *cookie);

/* How many elements the shape of a result has. Returns: 0 when that fits no size_t. */
int result_count(const struct result *result, size_t *count);
/* Copies the bytes that it points at, for memory that is written to again before they are sent. */
sluice_status result_copy_bytes(struct result *result, sluice_error *error);
/* Points the result at its numbers; `data` may be NULL where there are none. Bytes that lie in
 * `gather` are copied: it is used again before the answers are sent. */
sluice_status result_set_data(struct result *result, const void *data, size_t count,
                              const struct gather *gather, sluice_error *error);
/* Can the rows be shared out between the requests of a batch? `name`: for the sentence. */
sluice_status result_split(struct result *result, const char *name, uint64_t n_rows,
                           sluice_error *error);

/* Which outputs a batch wants, and room to give them out; of an instance. */
struct output_map {
    uint32_t *slots;  /* by index of a model's output: where it is among the chosen; or NO_SLOT */
    uint32_t *chosen; /* indices of the model's outputs */
    size_t n_chosen;  /* of the batch at hand */
    size_t n_outputs; /* of the model */
    sluice_output *taken;   /* one request's part of the results */
    sluice_output *outputs; /* the same as its response has them */
};

/* An output that was not asked for has no slot. */
#define NO_SLOT UINT32_MAX

/* Returns: 0 when there is no memory; output_map_fini frees what there is. */
int output_map_init(struct output_map *output_map, size_t n_outputs);
void output_map_fini(struct output_map *output_map);
/* Every output that any of the requests wants, once. */
void output_map_select(struct output_map *output_map, const sluice_request *const *requests,
                       size_t n_requests);
/* Answers every request with its part of the results, whose items are the chosen outputs. Takes a
 * reference of the results for each. */
void output_map_respond(struct output_map *output_map, const sluice_host *host,
                        struct results *results, const sluice_request *const *requests,
                        size_t n_requests);

#endif
