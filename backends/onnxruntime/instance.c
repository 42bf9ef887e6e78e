/* Instances: run ONNX Runtime once over the requests of a batch and split the outputs.
 * common/batch.c decides which requests are in it. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/batch.h"
#include "common/text.h"
#include "onnxruntime/model.h"
#include "onnxruntime/tensors.h"

/* ---- preallocated outputs -------------------------------------------------------------------- */

/* Small numeric outputs whose shape follows from the inputs are allocated before the run. ONNX
 * Runtime then neither allocates memory nor is queried for shapes, which saves a twentieth of a
 * small model's run. Only for a request that runs alone: the size of a batch changes each time.
 *
 * A free dimension has a name, and one name should mean one number, so an output's shape follows
 * from the inputs that use its names. ONNX Runtime fails the run when the model makes another
 * shape. */

/* Larger outputs are not preallocated, because their bytes are copied: the next run reuses the
 * value. */
enum { PREALLOC_MAX_RANK = 8, PREALLOC_MAX_BYTES = 4096 };

/* A dimension: a number, or the dimension of an input. */
struct prealloc_dim {
    int64_t number; /* < 0: the input's dimension */
    uint32_t input, dim;
};

struct prealloc_output {
    size_t rank;
    int shape_known; /* all dimensions can be computed */
    struct prealloc_dim from[PREALLOC_MAX_RANK];
    OrtValue *value; /* over `bytes`, with the latest dimensions; NULL: none */
    int64_t dims[PREALLOC_MAX_RANK];
    size_t n_bytes;
    unsigned char bytes[PREALLOC_MAX_BYTES];
};

/* Memory for executions, allocated once. Each array has one member per input or output of the
 * model. */
struct sluice_instance {
    struct sluice_model *model;
    struct gather gather;
    struct prealloc_output *preallocs; /* by index of the model's outputs */
    const char **input_names;          /* arguments of Run */
    OrtValue **input_values;
    const char **output_names;
    OrtValue **output_values;
    const struct prealloc_output **prealloc_outputs; /* NULL: Run allocates it */
    const sluice_tensor_info **infos;                /* descriptions of Run's outputs */
    struct output_map output_map;
    struct batch batch;
};

/* Finds the name among the dimensions of required inputs. */
static int find_symbol(const struct signature *signature, const char *name,
                       struct prealloc_dim *out) {
    for (size_t i = 0; i < signature->n_inputs; i++) {
        const sluice_tensor_info *input = &signature->inputs[i];
        for (size_t k = 0; !input->optional && k < input->rank; k++) {
            if (input->dims[k] < 0 && strcmp(input->symbols[k], name) == 0) {
                *out = (struct prealloc_dim){-1, (uint32_t)i, (uint32_t)k};
                return 1;
            }
        }
    }
    return 0;
}

/* An output that is an input has no value of its own: the preallocated one is not written. */
static int is_input(const struct signature *signature, const char *name) {
    for (size_t i = 0; i < signature->n_inputs; i++) {
        if (strcmp(signature->inputs[i].name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

/* An output without dimensions may have an unknown shape (README.md), and is not preallocated. */
static void prealloc_init(struct prealloc_output *output, const struct signature *signature,
                          const sluice_tensor_info *info) {
    output->rank = info->rank;
    output->shape_known = info->datatype != SLUICE_BYTES && info->rank > 0 &&
                          info->rank <= PREALLOC_MAX_RANK && !is_input(signature, info->name);
    for (size_t i = 0; output->shape_known && i < info->rank; i++) {
        output->from[i].number = info->dims[i];
        output->shape_known =
            info->dims[i] >= 0 || (info->symbols[i][0] != '\0' &&
                                   find_symbol(signature, info->symbols[i], &output->from[i]));
    }
}

/* Returns: -1 when the request lacks the input. */
static int64_t dim_of_input(const struct prealloc_dim *from, const sluice_request *request) {
    for (size_t i = 0; i < request->n_inputs; i++) {
        const sluice_input *input = &request->inputs[i];
        if (input->index == from->input && from->dim < input->rank) {
            return input->dims[from->dim];
        }
    }
    return -1;
}

/* Returns: 0 when a dimension is unknown. */
static int dims_of(const struct prealloc_output *output, const sluice_request *request,
                   int64_t *dims) {
    for (size_t i = 0; i < output->rank; i++) {
        const struct prealloc_dim *from = &output->from[i];
        dims[i] = from->number >= 0 ? from->number : dim_of_input(from, request);
        if (dims[i] < 0) {
            return 0;
        }
    }
    return 1;
}

/* Returns: 0 when it is empty or exceeds PREALLOC_MAX_BYTES. */
static size_t bytes_of_dims(const int64_t *dims, size_t rank, size_t n_element_bytes) {
    size_t n_bytes = n_element_bytes;
    for (size_t i = 0; i < rank; i++) {
        if (__builtin_mul_overflow(n_bytes, (size_t)dims[i], &n_bytes)) {
            return 0;
        }
    }
    return n_bytes <= PREALLOC_MAX_BYTES ? n_bytes : 0;
}

/* Replaces the value by one for these dimensions. */
static int value_new(struct prealloc_output *output, const struct ort *ort,
                     const struct datatype *datatype, const int64_t *dims) {
    size_t n_bytes = bytes_of_dims(dims, output->rank, datatype->n_bytes);
    if (n_bytes == 0) {
        return 0;
    }
    ort->api->ReleaseValue(output->value);
    output->value = NULL;
    output->n_bytes = n_bytes;
    memcpy(output->dims, dims, output->rank * sizeof(*dims));
    OrtStatus *failure = ort->api->CreateTensorWithDataAsOrtValue(
        ort->cpu, output->bytes, n_bytes, dims, output->rank, datatype->theirs, &output->value);
    ort->api->ReleaseStatus(failure);
    return output->value != NULL;
}

/* Returns: the value for output `index` of a run of that request, which the instance's next run
 * overwrites; NULL: not preallocated. */
static const struct prealloc_output *prealloc_find(const sluice_instance *instance, size_t index,
                                                   const sluice_request *request) {
    const struct sluice_model *model = instance->model;
    struct prealloc_output *output = &instance->preallocs[index];
    int64_t dims[PREALLOC_MAX_RANK];
    if (!output->shape_known || !dims_of(output, request, dims)) {
        return NULL;
    }
    if (output->value && memcmp(dims, output->dims, output->rank * sizeof(*dims)) == 0) {
        return output;
    }
    const struct datatype *datatype = datatype_of_ours(model->signature.outputs[index].datatype);
    return value_new(output, model->ort, datatype, dims) ? output : NULL;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Copies a preallocated value's bytes, because the next run reuses it. */
static sluice_status result_copy(struct result *result, const sluice_tensor_info *info,
                                 const struct prealloc_output *prealloc, sluice_error *error) {
    result->datatype = info->datatype;
    result->n_element_bytes = datatype_of_ours(info->datatype)->n_bytes;
    result->rank = prealloc->rank;
    memcpy(result->dims, prealloc->dims, prealloc->rank * sizeof(prealloc->dims[0]));
    result->next = prealloc->bytes;
    result->n_bytes = result->n_all_bytes = prealloc->n_bytes;
    return result_copy_bytes(result, error);
}

static void values_drop(struct results *results) {
    const struct ort *ort = results->owner;
    for (size_t i = 0; i < results->n; i++) {
        ort->api->ReleaseValue(results->items[i].value);
    }
}

/* The outputs of a successful run. Checks the values and describes them; those of several requests
 * must have all their rows in the first dimension.
 * Owns: takes the values that Run made, also on failure. On success *out has `n` references. */
static sluice_status results_make(const sluice_instance *instance,
                                  const sluice_request *const *requests, size_t n,
                                  struct results **out, sluice_error *error) {
    const struct ort *ort = instance->model->ort;
    size_t n_outputs = instance->output_map.n_chosen;
    sluice_status status = SLUICE_OK;
    struct results *results = results_new(n_outputs, n);
    for (size_t i = 0; i < n_outputs; i++) {
        OrtValue *made = instance->prealloc_outputs[i] ? NULL : instance->output_values[i];
        if (results) {
            results->items[i].value = made;
        } else {
            ort->api->ReleaseValue(made);
        }
    }
    if (!results) {
        return error_no_memory(error, "the outputs");
    }
    results->free_values = values_drop;
    results->owner = ort;
    for (size_t i = 0; status == SLUICE_OK && i < n_outputs; i++) {
        const sluice_tensor_info *info = instance->infos[i];
        const struct prealloc_output *prealloc = instance->prealloc_outputs[i];
        struct result *result = &results->items[i];
        status = prealloc ? result_copy(result, info, prealloc, error)
                          : output_read(ort, result, info, &instance->gather, error);
        if (status == SLUICE_OK && n > 1) {
            status = result_split(result, info->name, batch_rows(requests, n), error);
        }
    }
    if (status != SLUICE_OK) {
        results_free(results);
        return status;
    }
    *out = results;
    return SLUICE_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Selects the outputs for Run, with preallocated values where possible. Returns: whether there are
 * any. */
static int select_outputs(sluice_instance *instance, const sluice_request *const *requests,
                          size_t n) {
    struct sluice_model *model = instance->model;
    const struct output_map *output_map = &instance->output_map;
    int any = 0,
        may = n == 1 && !atomic_load_explicit(&model->shape_mismatch, memory_order_relaxed);
    for (size_t i = 0; i < output_map->n_chosen; i++) {
        const sluice_tensor_info *info = &model->signature.outputs[output_map->chosen[i]];
        const struct prealloc_output *prealloc =
            may ? prealloc_find(instance, output_map->chosen[i], requests[0]) : NULL;
        instance->output_names[i] = info->name;
        instance->output_values[i] = prealloc ? prealloc->value : NULL;
        instance->prealloc_outputs[i] = prealloc;
        instance->infos[i] = info;
        any = any || prealloc;
    }
    return any;
}

static OrtStatus *run_once(const sluice_instance *instance, size_t n_inputs) {
    const struct sluice_model *model = instance->model;
    memory_begin_run(model->max_output_bytes);
    OrtStatus *result = model->ort->api->Run(
        model->session, model->options.run, instance->input_names,
        (const OrtValue *const *)instance->input_values, n_inputs, instance->output_names,
        instance->output_map.n_chosen, instance->output_values);
    memory_end_run();
    return result;
}

/* A run fails when the model makes another shape than a preallocated value has. Runs again without
 * them; success shows that this was the reason. */
static OrtStatus *run_without_prealloc(const sluice_instance *instance, size_t n_inputs) {
    struct sluice_model *model = instance->model;
    for (size_t i = 0; i < instance->output_map.n_chosen; i++) {
        instance->output_values[i] = NULL;
        instance->prealloc_outputs[i] = NULL;
    }
    OrtStatus *result = run_once(instance, n_inputs);
    if (!result) {
        atomic_store_explicit(&model->shape_mismatch, 1, memory_order_relaxed);
    }
    return result;
}

static sluice_status run_model(const sluice_instance *instance,
                               const sluice_request *const *requests, size_t n, size_t n_inputs,
                               int any_prealloc, sluice_error *error) {
    const struct ort *ort = instance->model->ort;
    uint64_t began_ns = ort->host->now_ns();
    OrtStatus *result = run_once(instance, n_inputs);
    if (result && any_prealloc) {
        ort->api->ReleaseStatus(result);
        result = run_without_prealloc(instance, n_inputs);
    }
    ort->host->computed(requests, n, began_ns, ort->host->now_ns());
    return ort_check_run(ort, result, error);
}

static sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                                  sluice_error *error) {
    sluice_instance *instance = runner;
    const struct ort *ort = instance->model->ort;
    struct results *results = NULL;
    size_t n_inputs = 0;
    output_map_select(&instance->output_map, requests, n);
    int any_prealloc = select_outputs(instance, requests, n);
    sluice_status status = inputs_make(ort, &instance->gather, requests, n, instance->input_names,
                                       instance->input_values, &n_inputs, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run_model(instance, requests, n, n_inputs, any_prealloc, error);
    if (status == SLUICE_OK) {
        status = results_make(instance, requests, n, &results, error);
    }
    inputs_release(ort, instance->input_values, n_inputs);
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        output_map_respond(&instance->output_map, ort->host, results, requests, n);
    }
    return status;
}

/* An optional input replaces a value of the model for the whole run, so requests that have one
 * cannot share it. */
static int can_share(const void *runner, const sluice_request *const *requests, size_t n) {
    const sluice_instance *instance = runner;
    const struct signature *signature = &instance->model->signature;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < requests[i]->n_inputs; k++) {
            if (signature->inputs[requests[i]->inputs[k].index].optional) {
                return 0;
            }
        }
    }
    return 1;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Returns: 0 when out of memory; instance_close frees what was allocated. */
static int arrays_make(struct sluice_instance *instance) {
    const struct signature *signature = &instance->model->signature;
    size_t n_inputs = signature->n_inputs, n_outputs = signature->n_outputs;
    instance->preallocs = calloc(n_outputs + 1, sizeof(*instance->preallocs));
    instance->input_names = calloc(n_inputs + 1, sizeof(*instance->input_names));
    instance->input_values = calloc(n_inputs + 1, sizeof(*instance->input_values));
    instance->output_names = calloc(n_outputs + 1, sizeof(*instance->output_names));
    instance->output_values = calloc(n_outputs + 1, sizeof(*instance->output_values));
    instance->prealloc_outputs = calloc(n_outputs + 1, sizeof(*instance->prealloc_outputs));
    instance->infos = calloc(n_outputs + 1, sizeof(*instance->infos));
    for (size_t i = 0; instance->preallocs && i < n_outputs; i++) {
        prealloc_init(&instance->preallocs[i], signature, &signature->outputs[i]);
    }
    return output_map_init(&instance->output_map, n_outputs) && instance->preallocs &&
           instance->input_names && instance->input_values && instance->output_names &&
           instance->output_values && instance->prealloc_outputs && instance->infos;
}

sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error) {
    *instance = NULL;
    struct sluice_instance *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "instance %u", (unsigned)index);
    }
    opened->model = model;
    opened->batch = (struct batch){
        .host = model->ort->host, .run = run_together, .can_share = can_share, .runner = opened};
    if (!arrays_make(opened)) {
        instance_close(opened);
        return error_no_memory(error, "instance %u", (unsigned)index);
    }
    *instance = opened;
    return SLUICE_OK;
}

void instance_close(sluice_instance *instance) {
    const struct sluice_model *model = instance->model;
    for (size_t i = 0; instance->preallocs && i < model->signature.n_outputs; i++) {
        model->ort->api->ReleaseValue(instance->preallocs[i].value);
    }
    free(instance->preallocs);
    gather_fini(&instance->gather);
    free(instance->input_names);
    free(instance->input_values);
    free(instance->output_names);
    free(instance->output_values);
    free(instance->prealloc_outputs);
    free(instance->infos);
    output_map_fini(&instance->output_map);
    batch_fini(&instance->batch);
    free(instance);
}

void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    batch_execute(&instance->batch, requests, n);
}
