/* A backend in one file: FP32 inputs come back multiplied by `scale` and moved by `shift`, inputs
 * of other datatypes as they are. README.md goes through it; sluice/backend.h is the whole
 * contract.
 *
 *     cc -std=c11 -fPIC -shared scale.c -o libsluice_scale.so $(pkg-config --cflags sluice-backend)
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/backend.h"

/* The types are ours to define; the server holds only pointers to them. */
struct sluice_model {
    float scale, shift;
};

struct sluice_instance {
    const struct sluice_model *model;
};

/* What the server offers; it lives as long as the process. */
static const sluice_host *the_host;

static sluice_status fail(sluice_error *error, sluice_status status, const char *sentence) {
    snprintf(error->text, sizeof(error->text), "%s", sentence);
    return status;
}

/* ---- models: opened once per version -------------------------------------------------------- */

/* Strictly: a number and nothing else. */
static sluice_status read_number(const sluice_param *param, float *number, sluice_error *error) {
    char *end = NULL;
    float value = strtof(param->string, &end);
    if (end == param->string || *end != '\0' || !isfinite(value)) {
        snprintf(error->text, sizeof(error->text), "parameter %s: expected a number, got \"%.80s\"",
                 param->name, param->string);
        return SLUICE_INVALID_ARGUMENT;
    }
    *number = value;
    return SLUICE_OK;
}

/* A parameter that we don't know is a warning, but for the server's own. */
static sluice_status read_param(struct sluice_model *model, const sluice_model_args *args,
                                const sluice_param *param, sluice_error *error) {
    char text[160];
    if (strcmp(param->name, "scale") == 0) {
        return read_number(param, &model->scale, error);
    }
    if (strcmp(param->name, "shift") == 0) {
        return read_number(param, &model->shift, error);
    }
    if (strncmp(param->name, "sluice.", 7) != 0) {
        snprintf(text, sizeof(text), "parameter %.80s is unknown and ignored: scale, shift",
                 param->name);
        the_host->log(SLUICE_LOG_WARNING, args->name, text);
    }
    return SLUICE_OK;
}

static sluice_status model_open(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    *model = NULL;
    struct sluice_model *opened = malloc(sizeof(*opened));
    if (!opened) {
        return fail(error, SLUICE_NO_MEMORY, "out of memory for the model");
    }
    *opened = (struct sluice_model){1, 0};
    for (size_t i = 0; i < args->n_params; i++) {
        sluice_status status = read_param(opened, args, &args->params[i], error);
        if (status != SLUICE_OK) {
            free(opened);
            return status;
        }
    }
    *model = opened;
    return SLUICE_OK;
}

/* Inputs and outputs are whatever config.pbtxt says. Nothing here waits for anything, but how long
 * it takes depends on the size of the request: not `cheap`, but the server measures it, and
 * executes what was quick on the thread that read the request. */
static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)model;
    (void)error;
    info->takes_any = 1;
    info->time_follows_shapes = 1;
    return SLUICE_OK;
}

static void model_close(sluice_model *model) {
    free(model);
}

/* ---- instances: each executes one batch at a time ------------------------------------------- */

static sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    (void)index;
    *instance = malloc(sizeof(**instance));
    if (!*instance) {
        return fail(error, SLUICE_NO_MEMORY, "out of memory for an instance");
    }
    (*instance)->model = model;
    return SLUICE_OK;
}

static void instance_close(sluice_instance *instance) {
    free(instance);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void refuse(const sluice_request *request, sluice_status status, const char *sentence) {
    sluice_response response = {
        .size = sizeof(response), .status = status, .error = sentence, .final = 1};
    the_host->respond(request, &response);
}

/* Inputs come in the model's order, and optional ones may be missing. */
static const sluice_input *find_input(const sluice_request *request, uint32_t index) {
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (request->inputs[i].index == index) {
            return &request->inputs[i];
        }
    }
    return NULL;
}

/* An input may lie in several pieces. Those of FP32 hold whole, aligned numbers. */
static void fill(const struct sluice_model *model, const sluice_input *input, unsigned char *to) {
    int as_it_is = input->datatype != SLUICE_FP32 || (model->scale == 1 && model->shift == 0);
    for (size_t i = 0; i < input->n_pieces; i++) {
        const sluice_piece *piece = &input->pieces[i];
        if (as_it_is && piece->n_bytes > 0) {
            memcpy(to, piece->data, piece->n_bytes);
        }
        const float *from = piece->data;
        float *numbers = (float *)(void *)to;
        for (size_t k = 0; !as_it_is && k < piece->n_bytes / sizeof(float); k++) {
            numbers[k] = from[k] * model->scale + model->shift;
        }
        to += piece->n_bytes;
    }
}

/* Elements are at most 8 bytes. */
static size_t room_for(const sluice_input *input) {
    return (input->n_bytes + 7) / 8 * 8;
}

/* Output i is made of input i. One block holds the list of outputs, then their bytes; the server
 * gives it back through `release` when they are sent. */
static void run(const struct sluice_model *model, const sluice_request *request) {
    size_t n_bytes = request->n_wanted * sizeof(sluice_output);
    for (size_t i = 0; i < request->n_wanted; i++) {
        const sluice_input *input = find_input(request, request->wanted[i]);
        if (!input) {
            refuse(request, SLUICE_INVALID_ARGUMENT, "an output was asked for without its input");
            return;
        }
        n_bytes += room_for(input);
    }
    sluice_output *outputs = malloc(n_bytes);
    if (!outputs) {
        refuse(request, SLUICE_NO_MEMORY, "out of memory for the outputs");
        return;
    }
    unsigned char *to = (unsigned char *)(outputs + request->n_wanted);
    for (size_t i = 0; i < request->n_wanted; i++) {
        const sluice_input *input = find_input(request, request->wanted[i]);
        fill(model, input, to);
        outputs[i] = (sluice_output){
            request->wanted[i], input->datatype, input->dims, input->rank, to, input->n_bytes};
        to += room_for(input);
    }
    sluice_response response = {.size = sizeof(response),
                                .outputs = outputs,
                                .n_outputs = request->n_wanted,
                                .final = 1,
                                .release = free,
                                .cookie = outputs};
    the_host->respond(request, &response);
}

/* Called for a batch. This backend gains nothing from running its requests as one: each by itself,
 * with an answer of its own. */
static void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (the_host->is_cancelled(requests[i])) {
            refuse(requests[i], SLUICE_CANCELLED, "cancelled before it was run");
        } else {
            run(instance->model, requests[i]);
        }
    }
}

/* ---- the one exported function -------------------------------------------------------------- */

static const char *const extensions[] = {NULL}; /* a model is its directory: there is no file */

static const sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "scale",
    .version = "1",
    .extensions = extensions,
    .model_open = model_open,
    .model_describe = model_describe,
    .model_close = model_close,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};

/* Newer servers know more and say so by a larger size; one that knows less than we use is
 * refused. */
const sluice_backend *sluice_backend_entry(const sluice_host *host) {
    if (host->abi != SLUICE_BACKEND_ABI || host->size < sizeof(*host)) {
        host->log(SLUICE_LOG_ERROR, "", "the scale backend was made for another ABI");
        return NULL;
    }
    the_host = host;
    return &table;
}
