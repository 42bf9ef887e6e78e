/* A model in Python and its instances: what the files of the backend share. */
#ifndef SLUICE_PYTHON_MODEL_H
#define SLUICE_PYTHON_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "python/metrics.h"
#include "python/process.h"
#include "sluice/backend.h"

/* The parameters of config.pbtxt that the backend reads; others are for the model. */
struct options {
    char *of_model;  /* python */
    char *of_env;    /* EXECUTION_ENV_PATH */
    char *of_server; /* default-python */
    int start_timeout_s;
    int execute_timeout_s; /* 0: none */
    int finalize_timeout_s;
    uint64_t memory_limit_mb; /* 0: none */
    int n_threads;            /* of libraries in a worker; 0: as the environment says */
    char *env_cache;          /* NULL: the user's */
    uint64_t env_max_mb;
};

/* Returns: SLUICE_INVALID_ARGUMENT with a text that names the parameter; SLUICE_NO_MEMORY. Owns: on
 * success what `options` refers to, until options_fini. */
sluice_status options_init(struct options *options, const sluice_model_args *args,
                           sluice_error *error);
void options_fini(struct options *options);

struct sluice_model {
    const sluice_host *host;
    const sluice_calls *calls; /* of other models; NULL: the host has none */
    char *name;
    uint64_t version;
    uint32_t n_threads;
    char *file;
    char *directory; /* the model's; that of the file for a single file */
    struct options options;
    struct python python;
    uint64_t max_output_bytes; /* 0: no limit */
    char *config;              /* JSON: as it was given, from model_configured on complete */
    atomic_int n_ready;        /* instances whose worker is there, and whose is_ready says so */
    struct metrics metrics;
    int is_configured;
    int is_complete; /* auto_complete_config is not called */
    int decoupled;
    struct description {
        int is_set;
        uint64_t max_batch_size;
        int decoupled, dynamic_batching;
        sluice_tensor_info *inputs, *outputs;
        size_t n_inputs, n_outputs;
    } description; /* of auto_complete_config */
};

/* description.c */

struct wire_reader;
/* Reads DESCRIBED. Returns: 0 when it is not well-formed, or memory is out. */
int description_read(struct description *description, struct wire_reader *reader);
void description_fini(struct description *description);

/* Has a worker call auto_complete_config, and fills model->description. Returns: the model's error.
 */
sluice_status python_describe(sluice_model *model, sluice_error *error);

sluice_status python_instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error);
void python_instance_close(sluice_instance *instance);
void python_execute(sluice_instance *instance, const sluice_request *const *requests, size_t n);

#endif
