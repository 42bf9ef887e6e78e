/* The backend under whose name ensembles are opened. They have no instances, so that it has nothing
 * to execute. */
#include <assert.h>
#include <stdlib.h>

#include "serve/ensemble/ensemble.h"

struct sluice_model {
    char unused;
};

static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    static sluice_model one;
    (void)args;
    (void)error;
    *model = &one;
    return SLUICE_OK;
}

static sluice_status describe(sluice_model *model, sluice_model_info *info, sluice_error *error) {
    (void)model;
    (void)error;
    info->platform = "ensemble";
    info->takes_any = 1;
    return SLUICE_OK;
}

static void close_model(sluice_model *model) {
    (void)model;
}

static sluice_status open_instance(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    (void)model;
    (void)index;
    (void)error;
    *instance = NULL;
    return SLUICE_UNSUPPORTED;
}

static void close_instance(sluice_instance *instance) {
    (void)instance;
}

static void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    (void)instance;
    (void)requests;
    (void)n;
    assert(false); /* the scheduler passes the calls to ensemble_ops */
}

static const char *const no_extensions[] = {NULL};

const sluice_backend ensemble_backend = {
    .size = sizeof(ensemble_backend),
    .abi = SLUICE_BACKEND_ABI,
    .name = "ensemble",
    .version = "1",
    .extensions = no_extensions,
    .model_open = open_model,
    .model_describe = describe,
    .model_close = close_model,
    .instance_open = open_instance,
    .instance_close = close_instance,
    .execute = execute,
};
