/* The identity backend: every output is the input of the same index. It is the example to copy for
 * a new backend, and with its parameters it simulates a slow, failing or asynchronous model in
 * tests. It has no model file; config.pbtxt defines datatypes and shapes.
 *
 * Read in this order: this file (life of a model), echo.c (answering), async_responder.c (answering
 * asynchronously). */
#include "identity/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The process's host, set once by sluice_backend_entry; the other functions do not receive it. */
static const sluice_host *the_host;

struct sluice_model {
    struct options options;
};

struct sluice_instance {
    const struct sluice_model *model;
    struct scratch scratch;            /* for answers from execute */
    struct async_responder *responder; /* for asynchronous answers; else NULL */
};

/* Simulates a model that takes long to load. */
static void wait_seconds(uint64_t seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static sluice_status model_open(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    *model = NULL;
    struct sluice_model *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        snprintf(error->text, sizeof(error->text), "out of memory for the model");
        return SLUICE_NO_MEMORY;
    }
    sluice_status status = options_init(&opened->options, args, the_host, error);
    if (status != SLUICE_OK) {
        free(opened);
        return status;
    }
    wait_seconds(opened->options.creation_delay_s);
    *model = opened;
    return SLUICE_OK;
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)error;
    info->platform = "identity";
    info->takes_any = 1;
    info->cheap = model->options.delay_us == 0 && model->options.interval_us == 0;
    return SLUICE_OK;
}

static void model_close(sluice_model *model) {
    options_fini(&model->options);
    free(model);
}

static sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    *instance = NULL;
    struct sluice_instance *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        snprintf(error->text, sizeof(error->text), "out of memory for instance %u",
                 (unsigned)index);
        return SLUICE_NO_MEMORY;
    }
    opened->model = model;
    if (model->options.from_thread) {
        opened->responder = async_responder_start(the_host, &model->options);
        if (!opened->responder) {
            free(opened);
            snprintf(error->text, sizeof(error->text), "no thread for instance %u",
                     (unsigned)index);
            return SLUICE_UNAVAILABLE;
        }
    }
    *instance = opened;
    return SLUICE_OK;
}

static void instance_close(sluice_instance *instance) {
    async_responder_stop(instance->responder);
    scratch_fini(&instance->scratch);
    free(instance);
}

static void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    if (instance->responder) {
        async_responder_push(instance->responder, requests, n);
    } else {
        echo_batch(the_host, &instance->model->options, &instance->scratch, requests, n);
    }
}

/* No model file: the model is its directory. */
static const char *const extensions[] = {NULL};

static const sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "identity",
    .version = "1",
    .extensions = extensions,
    .model_open = model_open,
    .model_describe = model_describe,
    .model_close = model_close,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};

const sluice_backend *sluice_backend_entry(const sluice_host *host) {
    if (host->abi != SLUICE_BACKEND_ABI || host->size < sizeof(*host)) {
        char text[128];
        snprintf(text, sizeof(text),
                 "the identity backend needs ABI %u and a host of %zu bytes; the server offers %u "
                 "and %zu",
                 (unsigned)SLUICE_BACKEND_ABI, sizeof(*host), (unsigned)host->abi, host->size);
        host->log(SLUICE_LOG_ERROR, "", text);
        return NULL;
    }
    the_host = host;
    return &table;
}
