/* The configuration of a model: config.pbtxt (or defaults), completed from the backend's
 * description of the model, checked, and printable. */
#ifndef SLUICE_SERVE_CONFIG_CONFIG_H
#define SLUICE_SERVE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/doc/doc.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"
#include "serve/config/ensemble.h"

struct model_config_tensor {
    struct str name;
    enum datatype datatype; /* DT_INVALID: not configured */
    struct shape dims;      /* as configured, without the batch dimension */
    bool has_dims;
    struct str dims_origin; /* where `dims` was read: "dims in config.pbtxt, line 4" */
    struct shape reshape;   /* what the model sees instead of dims */
    bool has_reshape;
    bool optional;
    bool ragged;     /* allow_ragged_batch: shapes may differ in a batch */
    unsigned format; /* as ModelInput.Format; describes pictures to clients */
    struct str label_filename;
};

enum model_batch_input_kind {
    BATCH_ELEMENT_COUNT,                       /* for each request, its elements */
    BATCH_ACCUMULATED_ELEMENT_COUNT,           /* the same, with those of the requests before it */
    BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO, /* the same after a 0 */
    BATCH_MAX_ELEMENT_COUNT_AS_SHAPE,          /* as many elements as the largest request has */
    BATCH_ITEM_SHAPE,                          /* for each row, its shape */
    BATCH_ITEM_SHAPE_FLATTEN,                  /* the same in one dimension */
};

/* batch_input: inputs of the model that the server makes from the shapes of a batch's requests. */
struct model_batch_input {
    enum model_batch_input_kind kind;
    enum datatype datatype; /* DT_INT32 or DT_FP32 */
    const struct str *targets;
    size_t n_targets;
    struct str source; /* an input that clients send */
    struct str place;  /* where it was read: "config.pbtxt:4: batch_input" */
};

/* batch_output: outputs of which each request gets as many elements as its `source` says. */
struct model_batch_output {
    const struct str *targets;
    size_t n_targets;
    struct str source;
    struct str place;
};

enum model_padding_kind {
    PADDING_VALUE,  /* sluice.pad.INPUT: the value that fills rows up to the longest of the batch */
    PADDING_MASK,   /* sluice.pad_mask.INPUT: 1 for each element of the source input, then 0 */
    PADDING_LENGTH, /* sluice.pad_length.INPUT: the length of the source input */
    PADDING_CUT,    /* sluice.pad_cut.OUTPUT: is cut to the length of the source input */
};

/* A parameter on the padding of one input or output. */
struct model_padding {
    enum model_padding_kind kind;
    struct str param; /* its whole name */
    struct str name;  /* of the input or output */
    struct str value; /* a number for PADDING_VALUE, else the source */
};

/* Queue limits for the requests of one priority level. */
struct model_queue_policy {
    uint64_t max_size;     /* waiting requests; 0: the server's own limit */
    uint64_t timeout_us;   /* 0: no timeout */
    bool allow_override;   /* a request may set a shorter timeout */
    bool delay_on_timeout; /* on timeout a request moves to the end of its level; false:
                              it is refused */
};

/* The policy of one level. */
struct model_config_level {
    uint64_t level; /* from 1, the highest */
    struct model_queue_policy policy;
};

enum model_warmup_data { WARMUP_ZERO, WARMUP_RANDOM, WARMUP_FILE };

struct model_warmup_input {
    struct str name;
    enum datatype datatype;
    struct shape dims; /* of one row, without the batch dimension; none is -1 */
    enum model_warmup_data data;
    struct str filename; /* in the model's folder "warmup" */
};

/* A sample that every instance runs before the model is ready. */
struct model_warmup {
    struct str name;     /* for messages */
    uint64_t batch_size; /* rows; at least 1 */
    uint64_t count;      /* runs; at least 1 */
    const struct model_warmup_input *inputs;
    size_t n_inputs;
};

enum model_sequence_strategy {
    SEQUENCES_NONE,   /* requests are independent of each other */
    SEQUENCES_DIRECT, /* each sequence owns one row of one instance's batches */
    SEQUENCES_OLDEST, /* each sequence is bound to one instance and shares its batches in order
                         of arrival */
};

enum model_control_kind { CONTROL_START, CONTROL_READY, CONTROL_END, CONTROL_CORRID };

/* An input of the model that the server fills with the request's position in its sequence. */
struct model_control {
    struct str name;
    enum model_control_kind kind;
    enum datatype datatype;
    unsigned char values[2][4]; /* the value for false and the value for true; unused for
                                   CONTROL_CORRID */
};

/* A tensor that the server keeps from one request of a sequence to the next: an output of the
 * model, which clients need not know, becomes an input of the next request. */
struct model_state {
    struct str input_name, output_name;
    enum datatype datatype;
    struct shape dims; /* without the batch dimension; -1: any */
    /* Both are reported and have no effect: a state may grow, and no answer that is being sent
     * changes with it. */
    bool same_buffer, growable;
    bool has_initial;          /* else zeros, and 1 for each -1 of dims */
    struct str initial_name;   /* a label */
    struct shape initial_dims; /* of the first value, without the batch dimension; none is -1 */
    struct str initial_file;   /* in the model's folder "initial_state"; empty: zeros */
    struct str origin;         /* "sequence_batching.state[0] in config.pbtxt, line 4" */
};

/* sequence_batching. For SEQUENCES_OLDEST max_queue_delay_us, preferred_batch_sizes and
 * preserve_ordering mean the same as for dynamic batching; for SEQUENCES_DIRECT only the first
 * applies. */
struct model_sequences {
    enum model_sequence_strategy strategy;
    uint64_t idle_us; /* the longest time between two requests of a sequence */
    const struct model_control *controls;
    size_t n_controls;
    const struct model_state *states;
    size_t n_states;
    /* A request is a sequence of its own, which the backend has executed until it is done. */
    bool iterative;
    double min_utilization;  /* direct: the share of an instance's rows that makes a batch due at
                               once */
    uint64_t max_candidates; /* oldest: concurrent sequences per instance; 0: max_batch_size */
};

/* instance_group: instances that are alike. */
struct model_instance_group {
    struct str name; /* empty: as Triton, the model's with the group's number */
    uint64_t count;
    struct str host_policy; /* as configured, or Triton's name for the kind; never empty */
    bool names_policy;      /* it is configured */
};

#define DEFAULT_HOST_POLICY STR("cpu") /* of a model without an instance_group, too */

enum model_version_policy { VERSIONS_LATEST, VERSIONS_ALL, VERSIONS_SPECIFIC };

/* Where an execution runs. */
enum model_run_on { RUN_AUTO, RUN_ON_WORKER, RUN_ON_INSTANCE };

struct model_config_param {
    struct str name;
    struct str value;
    bool by_server; /* from the server's own settings, not from the model's config.pbtxt */
};

/* A library of operators that the backend loads for the model. */
struct model_config_library {
    struct str filename; /* as configured: absolute, or below the model's or another directory */
    struct str place;    /* where it was read: "config.pbtxt:4: model_operations…" */
};

/* A file that must have this digest, or the model is not loaded. */
struct model_config_checksum {
    struct str filename; /* below the model's directory */
    struct str md5;      /* 32 hexadecimal digits in lower case */
    struct str place;
};

/* Files that a configuration may name (model_file_open). */
enum model_files {
    MODEL_FILES_ALL,    /* it is the operator's, or came with its files */
    MODEL_FILES_PUBLIC, /* a request gave it for a directory on disk */
    MODEL_FILES_NONE,   /* a request gave it for a single file on disk */
};

struct model_config {
    enum model_files files; /* that it may name */
    struct str name;
    struct str backend;  /* "onnxruntime" */
    struct str platform; /* as configured or by the backend */
    bool has_max_batch_size;
    uint64_t max_batch_size;
    const char *batch_reason; /* why max_batch_size is what it is; for --check */
    struct model_config_tensor *inputs;
    size_t n_inputs;
    struct model_config_tensor *outputs;
    size_t n_outputs;
    enum model_version_policy policy;
    uint64_t latest_count; /* default 1 */
    const uint64_t *specific;
    size_t n_specific;
    struct str default_filename; /* empty: model.<extension of the backend> */
    uint64_t instance_count;     /* of all groups; 0: not configured */
    const struct model_instance_group *groups;
    size_t n_groups;
    bool has_dynamic_batching;
    uint64_t max_queue_delay_us;
    const uint64_t *preferred_batch_sizes;
    size_t n_preferred;
    bool preserve_ordering;
    bool decoupled;                  /* 0 or more answers to a request */
    bool response_cache;             /* answers may come from the response cache */
    uint64_t priority_levels;        /* 0: one level, and requests cannot choose */
    uint64_t default_priority;       /* from 1, where there are levels */
    struct model_queue_policy queue; /* for levels without a policy of their own */
    const struct model_config_level *levels;
    size_t n_levels;
    struct model_sequences sequences;
    struct model_ensemble ensemble;
    const uint64_t *first_response_bounds; /* of its histogram, in microseconds, ascending */
    size_t n_first_response_bounds;        /* 0: Triton's */
    const struct model_warmup *warmups;
    size_t n_warmups;
    const struct model_batch_input *batch_inputs;
    size_t n_batch_inputs;
    const struct model_batch_output *batch_outputs;
    size_t n_batch_outputs;
    const struct model_padding *paddings;
    size_t n_paddings;
    /* sluice.pad_multiple: padded lengths are rounded up to a multiple of it; 0: they are not */
    uint64_t pad_multiple;
    /* parameters { key: "sluice.run_on" value { string_value: "worker" } } */
    enum model_run_on run_on;
    const struct model_config_param *params;
    size_t n_params;
    int64_t graph_level; /* optimization.graph.level, GRAPH_LEVEL_MIN to GRAPH_LEVEL_MAX; 0: the
                            backend's default */
    const struct model_config_library *libraries; /* model_operations */
    size_t n_libraries;
    const struct model_config_checksum *checksums; /* model_repository_agents */
    size_t n_checksums;
    bool gpu_models_on_cpu; /* struct model_config_rules */
    bool written_for_gpus;  /* its instances are, and they run on CPUs */
};

enum { GRAPH_LEVEL_MIN = -1, GRAPH_LEVEL_MAX = 2 };

/* The server's own settings for all configurations. */
struct model_config_rules {
    bool gpu_models_on_cpu; /* instances that are written for GPUs are taken; else refused */
};

enum { BACKEND_NAME_MAX = 64 };
/* Returns: whether `name` can be a backend's name and part of its file name: [a-z0-9_-]+, at most
 * BACKEND_NAME_MAX bytes. */
bool backend_name_is_valid(struct str name);

/* read.c: reads a parsed config.pbtxt. A field that only tunes a feature Sluice lacks is logged as
 * a warning; a field that would change answers and is not supported, or is unknown, is an error
 * with line and field. `rules` NULL: the defaults.
 * Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: all memory is in `arena` (strings are copies). */
enum status model_config_read(struct arena *arena, const struct doc *doc,
                              const struct model_config_rules *rules, struct model_config *out,
                              struct error *err) SLUICE_MUST_USE;

struct doc_member; /* core/base/doc/reader.h */
/* Returns: the table of the fields of ModelConfig, with those inside of each as its `members`; the
 * reference in docs/models.md is compared with it. */
const struct doc_member *model_config_members(void);

/* Returns: whether the configuration has the parameter. */
bool model_config_has_param(const struct model_config *config, struct str name);
/* Adds a parameter, or replaces the one of that name. Names that begin with "sluice." take effect
 * at once and are not stored. Name and value are copied into `arena`.
 * Returns: ST_BAD_CONFIG (the caller adds where the parameter was given), ST_NO_MEMORY. */
enum status model_config_set_param(struct arena *arena, struct model_config *config,
                                   const struct model_config_param *param,
                                   struct error *err) SLUICE_MUST_USE;
/* Returns: whether the backend receives the parameter. Names that begin with "mip." are for the MIP
 * front end. */
bool model_config_param_is_for_backend(const struct model_config_param *param);

/* model_file.c: opens a file that a configuration names, such as labels and samples of a warm-up.
 * `path`, which is a file below the model's `directory` by its name. Where a request gave the
 * configuration, but not the files (MODEL_FILES_PUBLIC), its lines could be read by the client:
 * symbolic links must then lead to a file of `directory` that is neither config.pbtxt nor in the
 * directory of a version. `config` NULL: the server's own settings name the file.
 * Returns: as regular_file_open. Owns: the caller closes it. Thread: any. */
FILE *model_file_open(const struct model_config *config, struct str directory, const char *path,
                      const char **reason);

#endif
