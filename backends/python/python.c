/* The python backend: models that are a model.py with a class TritonPythonModel, as Triton's Python
 * backend has them. Each instance is a worker process, so that nothing of Python is in the server.
 *
 * Read in this order: wire.h (what goes between the two), instance.c (the life of a worker),
 * answers.c (its responses), block.h (shared memory); then python/sluice_server/worker, the other
 * side. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "python/model.h"

static const sluice_host *the_host;

static void model_close(sluice_model *model) {
    options_fini(&model->options);
    python_fini(&model->python);
    metrics_fini(&model->metrics);
    description_fini(&model->description);
    free(model->name);
    free(model->file);
    free(model->directory);
    free(model->config);
    free(model);
}

/* The directory of a file. Returns: NULL when out of memory. */
static char *directory_of(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? strndup(file, slash == file ? 1 : (size_t)(slash - file)) : strdup(".");
}

/* Returns: NULL where the host is older than calls of models. */
static const sluice_calls *calls_of(const sluice_model_args *args) {
    int has = args->size >= offsetof(sluice_model_args, calls) + sizeof(args->calls);
    return has && args->calls && args->calls->size >= sizeof(sluice_calls) ? args->calls : NULL;
}

static sluice_status model_open(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    *model = NULL;
    if (args->from_request) {
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "models in Python are not loaded with a configuration or files of a "
                         "request, which could be any program: put them into the repository, or "
                         "allow them (--programs-from-requests)");
    }
    struct sluice_model *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "the model");
    }
    opened->host = the_host;
    opened->python.environment = -1;
    metrics_init(&opened->metrics, the_host);
    opened->version = args->version;
    opened->n_threads = args->n_threads;
    opened->max_output_bytes = args->max_output_bytes;
    opened->name = strdup(args->name);
    opened->file = strdup(args->path);
    opened->directory = args->directory[0] ? strdup(args->directory) : directory_of(args->path);
    opened->config = args->config_json ? strndup(args->config_json, args->config_json_bytes) : NULL;
    opened->is_complete = args->is_complete != 0;
    opened->calls = calls_of(args);
    sluice_status status = opened->name && opened->file && opened->directory
                               ? options_init(&opened->options, args, error)
                               : error_no_memory(error, "the model");
    if (status == SLUICE_OK) {
        const struct python_choice choice = {.of_model = opened->options.of_model,
                                             .of_env = opened->options.of_env,
                                             .of_server = opened->options.of_server,
                                             .cache = opened->options.env_cache,
                                             .max_bytes = opened->options.env_max_mb << 20};
        status = python_find(&choice, opened->directory, &opened->python, error);
    }
    if (status != SLUICE_OK) {
        model_close(opened);
        return status;
    }
    char text[PATH_MAX + 64];
    snprintf(text, sizeof(text), "runs with %s (%s)", opened->python.path, opened->python.origin);
    the_host->log(SLUICE_LOG_INFO, opened->name, text);
    *model = opened;
    return SLUICE_OK;
}

/* Returns: whether the file contains the word. A worker is started to describe a model only where
 * it could have something to say. */
static int file_has(const char *path, const char *word) {
    char line[4096];
    int found = 0;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file)) {
        found = strstr(line, word) != NULL;
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static sluice_status fail_unlisted(const struct sluice_model *model, sluice_error *error) {
    return error_set(error, SLUICE_INVALID_ARGUMENT,
                     "the inputs and outputs of a model in Python are listed in config.pbtxt, or "
                     "added by a method of its class in %.120s: @staticmethod def "
                     "auto_complete_config(config): config.add_input({\"name\": \"IN\", "
                     "\"data_type\": \"TYPE_FP32\", \"dims\": [-1]}); config.add_output("
                     "{\"name\": \"OUT\", \"data_type\": \"TYPE_FP32\", \"dims\": [-1]}); "
                     "config.set_max_batch_size(8); return config",
                     model->file);
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    info->platform = "python";
    info->takes_any = 1;
    if (info->size >= offsetof(sluice_model_info, iterative) + sizeof(info->iterative)) {
        info->iterative = 1; /* InferenceRequest.set_release_flags */
    }
    int completes = model->config && !model->is_complete &&
                    info->size >= offsetof(sluice_model_info, max_batch_size) + 8 &&
                    file_has(model->file, "auto_complete_config");
    sluice_status status = completes ? python_describe(model, error) : SLUICE_OK;
    const struct description *description = &model->description;
    if (status == SLUICE_OK && description->is_set) {
        info->adds_config = 1;
        info->max_batch_size = description->max_batch_size;
        info->decoupled = description->decoupled;
        info->dynamic_batching = description->dynamic_batching;
        info->inputs = description->inputs;
        info->n_inputs = description->n_inputs;
        info->outputs = description->outputs;
        info->n_outputs = description->n_outputs;
    }
    /* The host prints it without blanks. */
    int lists_none = completes ? description->n_outputs == 0
                               : model->config && strstr(model->config, "\"output\":[]");
    return status == SLUICE_OK && lists_none ? fail_unlisted(model, error) : status;
}

static sluice_status model_configured(sluice_model *model, const sluice_model_config *config,
                                      sluice_error *error) {
    free(model->config);
    model->config = strndup(config->json, config->json_bytes);
    model->decoupled = config->decoupled != 0;
    model->is_configured = 1;
    return model->config ? SLUICE_OK : error_no_memory(error, "the model's configuration");
}

static int model_is_ready(sluice_model *model) {
    return atomic_load_explicit(&model->n_ready, memory_order_relaxed) > 0;
}

static const char *const extensions[] = {".py", NULL};

static const sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "python",
    .version = "1",
    .extensions = extensions,
    .model_open = model_open,
    .model_describe = model_describe,
    .model_close = model_close,
    .instance_open = python_instance_open,
    .instance_close = python_instance_close,
    .execute = python_execute,
    .model_configured = model_configured,
    .model_is_ready = model_is_ready,
};

const sluice_backend *sluice_backend_entry(const sluice_host *host) {
    if (!text_check_host_abi(host, table.name)) {
        return NULL;
    }
    if (!process_keep_environment()) {
        host->log(SLUICE_LOG_ERROR, NULL, "out of memory for the python backend");
        return NULL;
    }
    the_host = host;
    return &table;
}
