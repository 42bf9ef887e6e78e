/* Instances: run OpenVINO once over the requests of a batch and split the outputs. common/batch.c
 * decides which requests are in it. Inputs are views of the request's or the instance's memory (the
 * library does not write to them, though its function takes a writable pointer). Outputs stay in
 * the memory of the pooled request that ran them, which returns to the pool when the last of them
 * is released. The library computes every output, wanted or not. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openvino/c/ov_infer_request.h>
#include <openvino/c/ov_tensor.h>

#include "common/batch.h"
#include "common/text.h"
#include "openvino/model.h"

/* ---- pool of requests ------------------------------------------------------------------------ */

/* The infer requests of an instance. A request's own memory contains the outputs of its run: until
 * they are sent, the next run uses another request. A few idle ones are kept: each has memory for
 * its last run, and creating one costs more than a small model's run. */
enum { KEEP = 4, KEEP_BYTES = 4 << 20 };

struct pooled_request {
    struct pooled_request *next; /* in the list of idle ones */
    struct request_pool *pool;
    ov_infer_request_t *request;
};

/* Outlives its instance until every request is returned. */
struct request_pool {
    ov_compiled_model_t *compiled;
    pthread_mutex_t lock; /* protects the fields below; held for a few instructions */
    struct pooled_request *idle;
    size_t n_idle;
    size_t n_refs; /* one per request in use, one for the instance */
};

static void pooled_request_free(struct pooled_request *pooled) {
    ov_infer_request_free(pooled->request);
    free(pooled);
}

/* Owns: takes the compiled model, also on failure. Returns: NULL when out of memory. */
static struct request_pool *request_pool_new(ov_compiled_model_t *compiled) {
    struct request_pool *pool = calloc(1, sizeof(*pool));
    if (!pool || pthread_mutex_init(&pool->lock, NULL) != 0) {
        ov_compiled_model_free(compiled);
        free(pool);
        return NULL;
    }
    pool->compiled = compiled;
    pool->n_refs = 1;
    return pool;
}

/* Returns: the idle list, when the last reference was dropped. */
static struct pooled_request *pool_unref(struct request_pool *pool, int *last) {
    *last = --pool->n_refs == 0;
    return *last ? pool->idle : NULL;
}

static void request_pool_free(struct request_pool *pool, struct pooled_request *idle) {
    for (struct pooled_request *next; idle; idle = next) {
        next = idle->next;
        pooled_request_free(idle);
    }
    ov_compiled_model_free(pool->compiled);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Drops the instance's reference. */
static void request_pool_unref(struct request_pool *pool) {
    int last = 0;
    pthread_mutex_lock(&pool->lock);
    struct pooled_request *idle = pool_unref(pool, &last);
    pthread_mutex_unlock(&pool->lock);
    if (last) {
        request_pool_free(pool, idle);
    }
}

static sluice_status pooled_request_new(struct request_pool *pool, struct pooled_request **pooled,
                                        sluice_error *error) {
    struct pooled_request *made = calloc(1, sizeof(*made));
    if (!made) {
        return error_no_memory(error, "a run");
    }
    sluice_status status =
        ov_check(ov_compiled_model_create_infer_request(pool->compiled, &made->request),
                 "a run could not be prepared", error);
    if (status != SLUICE_OK) {
        free(made);
        return status;
    }
    made->pool = pool;
    *pooled = made;
    return SLUICE_OK;
}

/* Owns: on success *pooled until request_pool_put. Thread: one at a time. */
static sluice_status request_pool_get(struct request_pool *pool, struct pooled_request **pooled,
                                      sluice_error *error) {
    pthread_mutex_lock(&pool->lock);
    *pooled = pool->idle;
    if (*pooled) {
        pool->idle = (*pooled)->next;
        pool->n_idle--;
    }
    pool->n_refs++;
    pthread_mutex_unlock(&pool->lock);
    if (*pooled) {
        return SLUICE_OK;
    }
    sluice_status status = pooled_request_new(pool, pooled, error);
    if (status != SLUICE_OK) {
        request_pool_unref(pool); /* the reference that it held */
    }
    return status;
}

/* `n_bytes`: the size of its outputs; a request with unusually large ones is freed. Thread: any. */
static void request_pool_put(struct pooled_request *pooled, size_t n_bytes) {
    struct request_pool *pool = pooled->pool;
    int last = 0, kept = 0;
    pthread_mutex_lock(&pool->lock);
    if (n_bytes <= KEEP_BYTES && pool->n_idle < KEEP) {
        pooled->next = pool->idle;
        pool->idle = pooled;
        pool->n_idle++;
        kept = 1;
    }
    struct pooled_request *idle = pool_unref(pool, &last);
    pthread_mutex_unlock(&pool->lock);
    if (!kept) {
        pooled_request_free(pooled);
    }
    if (last) {
        request_pool_free(pool, idle);
    }
}

struct sluice_instance {
    const struct sluice_model *model;
    struct request_pool *pool;
    struct gather gather;
    ov_tensor_t **inputs; /* the tensors of a run, one per model input */
    struct output_map output_map;
    struct batch batch;
};

/* ---- inputs ---------------------------------------------------------------------------------- */

static sluice_status refuse_wide(const sluice_input *input, int64_t value, sluice_error *error) {
    char text[32];
    if (input->datatype == SLUICE_UINT64) {
        snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)value);
    } else {
        snprintf(text, sizeof(text), "%" PRId64, value);
    }
    return error_set(error, SLUICE_INVALID_ARGUMENT,
                     "input \"%.100s\" has %s, and OpenVINO computes 64-bit numbers as 32-bit "
                     "ones: values from %ld to %ld are expected",
                     input->name, text, input->datatype == SLUICE_UINT64 ? 0L : (long)INT32_MIN,
                     (long)INT32_MAX);
}

/* The CPU device silently keeps the lower half of a 64-bit number; an error is better than a wrong
 * answer. */
static sluice_status width_check(const sluice_input *input, const void *data, size_t n_bytes,
                                 sluice_error *error) {
    if (input->datatype != SLUICE_INT64 && input->datatype != SLUICE_UINT64) {
        return SLUICE_OK;
    }
    int64_t min = input->datatype == SLUICE_UINT64 ? 0 : INT32_MIN;
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n_bytes; i += sizeof(int64_t)) {
        int64_t value;
        memcpy(&value, bytes + i, sizeof(value));
        if (value < min || value > INT32_MAX) {
            return refuse_wide(input, value, error);
        }
    }
    return SLUICE_OK;
}

static sluice_status input_set(sluice_instance *instance, struct pooled_request *pooled,
                               const sluice_request *const *requests, size_t n, size_t index,
                               sluice_error *error) {
    static const char input_failure[] = "an input could not be handed to OpenVINO";
    const sluice_input *input = &requests[0]->inputs[index];
    int64_t room[MAX_RANK];
    const int64_t *dims = gather_dims(requests, n, index, room);
    const ov_shape_t shape = {(int64_t)input->rank, (int64_t *)(uintptr_t)dims};
    size_t n_bytes = 0;
    const void *data = gather_input(&instance->gather, requests, n, index, &n_bytes);
    sluice_status status = width_check(input, data, n_bytes, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status =
        ov_check(ov_tensor_create_from_host_ptr(datatype_of_ours(input->datatype)->theirs, shape,
                                                (void *)(uintptr_t)data, &instance->inputs[index]),
                 input_failure, error);
    if (status != SLUICE_OK) {
        return status;
    }
    return ov_check(ov_infer_request_set_input_tensor_by_index(pooled->request, input->index,
                                                               instance->inputs[index]),
                    input_failure, error);
}

/* ---- outputs --------------------------------------------------------------------------------- */

static const char output_failure[] = "an output could not be read from OpenVINO";

/* The library returns no shape for a scalar. */
static sluice_status shape_read(struct result *result, const sluice_tensor_info *info,
                                sluice_error *error) {
    ov_shape_t shape = {0};
    if (info->rank == 0) {
        return SLUICE_OK;
    }
    sluice_status status =
        ov_check(ov_tensor_get_shape(result->value, &shape), output_failure, error);
    if (status != SLUICE_OK) {
        return status;
    }
    result->rank = (size_t)shape.rank;
    if (result->rank > MAX_RANK) {
        status = error_set(error, SLUICE_INVALID_ARGUMENT, "an output has more than 64 dimensions");
    } else {
        memcpy(result->dims, shape.dims, result->rank * sizeof(*result->dims));
    }
    ov_shape_free(&shape);
    return status;
}

static sluice_status bytes_find(struct result *result, const struct gather *gather,
                                sluice_error *error) {
    void *data = NULL;
    size_t count = 0;
    if (!result_count(result, &count)) {
        return error_set(error, SLUICE_INTERNAL, "an output is larger than memory");
    }
    sluice_status status =
        count > 0 ? ov_check(ov_tensor_data(result->value, &data), output_failure, error)
                  : SLUICE_OK;
    return status == SLUICE_OK ? result_set_data(result, data, count, gather, error) : status;
}

static sluice_status result_init(struct result *result, const sluice_tensor_info *info,
                                 const struct gather *gather, sluice_error *error) {
    const struct datatype *datatype = datatype_of_ours(info->datatype);
    ov_element_type_e element = DYNAMIC;
    sluice_status status =
        ov_check(ov_tensor_get_element_type(result->value, &element), output_failure, error);
    if (status == SLUICE_OK && element != datatype->theirs) {
        status = error_set(error, SLUICE_INTERNAL,
                           "output \"%.100s\" came with elements of type %s, not as the model "
                           "describes it",
                           info->name, datatype_word(element));
    }
    if (status == SLUICE_OK) {
        status = shape_read(result, info, error);
    }
    result->datatype = info->datatype;
    result->n_element_bytes = datatype->n_bytes;
    return status == SLUICE_OK ? bytes_find(result, gather, error) : status;
}

static void tensors_free(struct results *results) {
    for (size_t i = 0; i < results->n; i++) {
        ov_tensor_free(results->items[i].value);
    }
}

static void outputs_drop(struct results *results) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < results->n; i++) {
        n_bytes += results->items[i].n_all_bytes;
    }
    tensors_free(results);
    request_pool_put(results->owner_ref, n_bytes);
}

static sluice_status results_fill(sluice_instance *instance, struct results *results,
                                  const sluice_request *const *requests, size_t n,
                                  sluice_error *error) {
    const struct output_map *output_map = &instance->output_map;
    struct pooled_request *pooled = results->owner_ref;
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; status == SLUICE_OK && i < results->n; i++) {
        struct result *result = &results->items[i];
        const sluice_tensor_info *info = &instance->model->signature.outputs[output_map->chosen[i]];
        ov_tensor_t *tensor = NULL;
        status = ov_check(ov_infer_request_get_output_tensor_by_index(
                              pooled->request, output_map->chosen[i], &tensor),
                          output_failure, error);
        result->value = tensor;
        if (status == SLUICE_OK) {
            status = result_init(result, info, &instance->gather, error);
        }
        if (status == SLUICE_OK && n > 1) {
            status = result_split(result, info->name, batch_rows(requests, n), error);
        }
    }
    return status;
}

static sluice_status outputs_get(sluice_instance *instance, struct pooled_request *pooled,
                                 const sluice_request *const *requests, size_t n,
                                 struct results **results, sluice_error *error) {
    struct results *made = results_new(instance->output_map.n_chosen, n);
    if (!made) {
        return error_no_memory(error, "the outputs");
    }
    made->free_values = tensors_free; /* on failure the pooled request remains the caller's */
    made->owner_ref = pooled;
    sluice_status status = results_fill(instance, made, requests, n, error);
    if (status != SLUICE_OK) {
        results_free(made);
        return status;
    }
    made->free_values = outputs_drop;
    *results = made;
    return SLUICE_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static sluice_status run_model(sluice_instance *instance, struct pooled_request *pooled,
                               const sluice_request *const *requests, size_t n,
                               sluice_error *error) {
    const sluice_host *host = instance->model->ov->host;
    if (!gather_begin(&instance->gather, requests, n)) {
        return error_no_memory(error, "gathering the inputs");
    }
    for (size_t i = 0; i < requests[0]->n_inputs; i++) {
        sluice_status status = input_set(instance, pooled, requests, n, i, error);
        if (status != SLUICE_OK) {
            return status;
        }
    }
    uint64_t began_ns = host->now_ns();
    /* ov_infer_request_infer cannot be used: with one thread, when shapes are incompatible it
     * swallows the exception, returns OK, and leaves the outputs of the run before, which belong to
     * another request (2026.4.1). On the library's own thread the error is reported. */
    ov_status_e result = ov_infer_request_start_async(pooled->request);
    if (result == OK) {
        result = ov_infer_request_wait(pooled->request);
    }
    host->computed(requests, n, began_ns, host->now_ns());
    return ov_check(result, "the model could not be run", error);
}

static sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                                  sluice_error *error) {
    sluice_instance *instance = runner;
    struct results *results = NULL;
    struct pooled_request *pooled = NULL;
    output_map_select(&instance->output_map, requests, n);
    sluice_status status = request_pool_get(instance->pool, &pooled, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run_model(instance, pooled, requests, n, error);
    if (status == SLUICE_OK) {
        status = outputs_get(instance, pooled, requests, n, &results, error);
    }
    for (size_t i = 0; i < instance->model->signature.n_inputs; i++) {
        ov_tensor_free(instance->inputs[i]);
        instance->inputs[i] = NULL;
    }
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        output_map_respond(&instance->output_map, instance->model->ov->host, results, requests, n);
    } else {
        request_pool_put(pooled, SIZE_MAX); /* its state is unknown */
    }
    return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error) {
    *instance = NULL;
    struct sluice_instance *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "instance %u", (unsigned)index);
    }
    opened->model = model;
    opened->batch = (struct batch){.host = model->ov->host, .run = run_together, .runner = opened};
    opened->inputs = calloc(model->signature.n_inputs + 1, sizeof(*opened->inputs));
    int whole = output_map_init(&opened->output_map, model->signature.n_outputs) && opened->inputs;
    ov_compiled_model_t *compiled = NULL;
    sluice_status status = whole ? model_compile(model, &compiled, error)
                                 : error_no_memory(error, "instance %u", (unsigned)index);
    if (status == SLUICE_OK) {
        opened->pool = request_pool_new(compiled);
        status = opened->pool ? SLUICE_OK : error_no_memory(error, "an instance");
    }
    if (status != SLUICE_OK) {
        instance_close(opened);
        return status;
    }
    *instance = opened;
    return SLUICE_OK;
}

void instance_close(sluice_instance *instance) {
    if (instance->pool) {
        request_pool_unref(instance->pool);
    }
    gather_fini(&instance->gather);
    free(instance->inputs);
    output_map_fini(&instance->output_map);
    batch_fini(&instance->batch);
    free(instance);
}

void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    batch_execute(&instance->batch, requests, n);
}
