/* A backend for tests, written from the public header alone: opening a model waits until the file
 * that its parameter `gate` names exists, and an execution until that of `execute_gate` does, where
 * there is that parameter. It refuses every request. Loading the backend itself waits for the file
 * that the environment variable ENTRY_GATE names, where it is set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sluice/backend.h"

static const sluice_host *the_host;

struct sluice_model {
    char execute_gate[4096]; /* "": none */
};

struct sluice_instance {
    const struct sluice_model *model;
};

static const char *gate_of(const sluice_model_args *args, const char *name) {
    for (size_t i = 0; i < args->n_params; i++) {
        if (strcmp(args->params[i].name, name) == 0) {
            return args->params[i].string;
        }
    }
    return NULL;
}

static void wait_for_gate(const char *gate) {
    while (access(gate, F_OK) != 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static sluice_status model_open(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    const char *gate = gate_of(args, "gate"), *execute_gate = gate_of(args, "execute_gate");
    *model = NULL;
    if (!gate) {
        snprintf(error->text, sizeof(error->text), "expected the parameter \"gate\"");
        return SLUICE_INVALID_ARGUMENT;
    }
    wait_for_gate(gate);
    *model = calloc(1, sizeof(**model));
    if (!*model) {
        return SLUICE_NO_MEMORY;
    }
    snprintf((*model)->execute_gate, sizeof((*model)->execute_gate), "%s",
             execute_gate ? execute_gate : "");
    return SLUICE_OK;
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)model, (void)error;
    info->takes_any = 1;
    return SLUICE_OK;
}

static void model_close(sluice_model *model) {
    free(model);
}

static sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    (void)index, (void)error;
    *instance = calloc(1, sizeof(**instance));
    if (!*instance) {
        return SLUICE_NO_MEMORY;
    }
    (*instance)->model = model;
    return SLUICE_OK;
}

static void instance_close(sluice_instance *instance) {
    free(instance);
}

static void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    if (instance->model->execute_gate[0] != '\0') {
        wait_for_gate(instance->model->execute_gate);
    }
    for (size_t i = 0; i < n; i++) {
        sluice_response response = {.size = sizeof(response),
                                    .status = SLUICE_UNAVAILABLE,
                                    .error = "nothing behind the gate",
                                    .final = 1};
        the_host->respond(requests[i], &response);
    }
}

static const char *const extensions[] = {NULL};

static const sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "gate",
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
    const char *gate = getenv("ENTRY_GATE");
    the_host = host;
    if (gate) {
        wait_for_gate(gate);
    }
    return &table;
}
