/* One run of OpenVINO over the requests of a batch, the outputs shared out. Who is in the batch is
 * decided in common/batch.c. The library computes every output, wanted or not. */
#include "openvino/execute.h"

#include "openvino/inputs.h"
#include "openvino/outputs.h"

/* Not ov_infer_request_infer: with one thread that call drops what shapes that don't fit together
 * throw, says that all went well, and leaves the outputs of the run before, which are another
 * request's (2026.4.1). Run by the library's own thread it fails as it should. */
static ov_status_e infer(ov_infer_request_t *request) {
    ov_status_e result = ov_infer_request_start_async(request);
    return result == OK ? ov_infer_request_wait(request) : result;
}

static sluice_status run(sluice_instance *instance, struct pooled_request *pooled,
                         const sluice_request *const *requests, size_t n, sluice_error *error) {
    const sluice_host *host = instance->model->ov->host;
    sluice_status status = inputs_set(instance, pooled, requests, n, error);
    if (status != SLUICE_OK) {
        return status;
    }
    uint64_t began_ns = host->now_ns();
    ov_status_e result = infer(pooled->request);
    host->computed(requests, n, began_ns, host->now_ns());
    return ov_check(result, "the model could not be run", error);
}

sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error) {
    sluice_instance *instance = runner;
    struct results *results = NULL;
    struct pooled_request *pooled = NULL;
    output_map_select(&instance->output_map, requests, n);
    sluice_status status = request_pool_get(instance->pool, &pooled, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run(instance, pooled, requests, n, error);
    if (status == SLUICE_OK) {
        status = outputs_get(instance, pooled, requests, n, &results, error);
    }
    inputs_release(instance);
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        output_map_respond(&instance->output_map, instance->model->ov->host, results, requests, n);
    } else {
        request_pool_put(pooled, SIZE_MAX); /* what state it is in nobody knows */
    }
    return status;
}

void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    batch_execute(&instance->batch, requests, n);
}
