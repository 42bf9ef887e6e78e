/* A backend for tests of iterative sequences, written from the public header alone: it counts down
 * from INPUT, one less in each execution, and is done at 0. LEFT is what is left, COUNT the number
 * of executions, ROWS how many requests this one had, ID the sequence. LEFT and COUNT are kept by
 * the server: states OLD_LEFT → NEW_LEFT and OLD_COUNT → NEW_COUNT.
 *
 * Parameters of a request: `delay_us` makes each execution slow; `forever` asks for another
 * execution without outputs each time. Parameter of the model: `iterative`, "no": it is not
 * described as one that asks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/backend.h"

static const sluice_host *the_host;

struct sluice_model {
    int iterative;
};

struct sluice_instance {
    int unused;
};

static struct sluice_instance the_instance;

/* The outputs in the order of config.pbtxt, then those of the states. */
enum { LEFT, COUNT, ROWS, ID, NEW_LEFT, NEW_COUNT, N_OUTPUTS };

static sluice_status model_open(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    (void)error;
    *model = calloc(1, sizeof(**model));
    if (!*model) {
        return SLUICE_NO_MEMORY;
    }
    (*model)->iterative = 1;
    for (size_t i = 0; i < args->n_params; i++) {
        if (strcmp(args->params[i].name, "iterative") == 0) {
            (*model)->iterative = strcmp(args->params[i].string, "no") != 0;
        }
    }
    return SLUICE_OK;
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)error;
    info->takes_any = 1;
    info->iterative = model->iterative;
    return SLUICE_OK;
}

static void model_close(sluice_model *model) {
    free(model);
}

static sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    (void)model, (void)index, (void)error;
    *instance = &the_instance;
    return SLUICE_OK;
}

static void instance_close(sluice_instance *instance) {
    (void)instance;
}

static int32_t number_of(const sluice_request *request, const char *name) {
    int32_t number = 0;
    for (size_t i = 0; i < request->n_inputs; i++) {
        const sluice_input *input = &request->inputs[i];
        if (strcmp(input->name, name) == 0) {
            memcpy(&number, input->pieces[0].data, sizeof(number));
        }
    }
    return number;
}

static int has_param(const sluice_request *request, const char *name, int64_t *number) {
    for (size_t i = 0; i < request->n_params; i++) {
        if (strcmp(request->params[i].name, name) == 0) {
            *number = request->params[i].int64;
            return 1;
        }
    }
    return 0;
}

static void answer(const sluice_request *request, const int32_t numbers[N_OUTPUTS], int again) {
    static const int64_t dims[2] = {1, 1};
    sluice_output outputs[N_OUTPUTS];
    int32_t *block = malloc(N_OUTPUTS * sizeof(*block));
    if (!block) {
        abort();
    }
    memcpy(block, numbers, N_OUTPUTS * sizeof(*block));
    for (size_t i = 0; i < request->n_wanted; i++) {
        outputs[i] = (sluice_output){.index = request->wanted[i],
                                     .datatype = SLUICE_INT32,
                                     .dims = dims,
                                     .rank = request->inputs[0].rank,
                                     .data = &block[request->wanted[i]],
                                     .n_bytes = sizeof(*block)};
    }
    sluice_response response = {.size = sizeof(response),
                                .outputs = outputs,
                                .n_outputs = request->n_wanted,
                                .final = !again,
                                .release = free,
                                .cookie = block,
                                .run_again = again};
    the_host->respond(request, &response);
}

static void execute_one(const sluice_request *request, size_t n) {
    int64_t ignored;
    int is_padding = !number_of(request, "CORRID"); /* the server ends it in any case */
    if (is_padding || has_param(request, "forever", &ignored)) {
        sluice_response response = {.size = sizeof(response), .run_again = 1};
        the_host->respond(request, &response);
        return;
    }
    int starts = number_of(request, "START");
    int32_t left = number_of(request, starts ? "INPUT" : "OLD_LEFT") - 1;
    int32_t count = number_of(request, "OLD_COUNT") + 1;
    int32_t numbers[N_OUTPUTS] = {left, count, (int32_t)n, number_of(request, "CORRID"),
                                  left, count};
    answer(request, numbers, left > 0);
}

static void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    int64_t us = 0, most = 0;
    (void)instance;
    for (size_t i = 0; i < n; i++) {
        most = has_param(requests[i], "delay_us", &us) && us > most ? us : most;
    }
    nanosleep(&(struct timespec){.tv_sec = most / 1000000, .tv_nsec = most % 1000000 * 1000}, NULL);
    for (size_t i = 0; i < n; i++) {
        execute_one(requests[i], n);
    }
}

static const char *const extensions[] = {NULL};

static const sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "countdown",
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
    the_host = host;
    return &table;
}
