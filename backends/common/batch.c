/* Inputs: zero copy for a single request whose bytes are contiguous, one copy otherwise. Outputs:
 * values as bytes and shapes. Runs: a batch that fails is halved, so that one bad request of n
 * costs about 2 log2(n) runs. Sizes and shapes were checked by the server. */
#include "common/batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

enum { ALIGNMENT = 64, KEEP_BYTES = 16 << 20 };

void gather_fini(struct gather *gather) {
    free(gather->bytes);
    *gather = (struct gather){0};
}

void gather_trim(struct gather *gather) {
    if (gather->n_bytes > KEEP_BYTES) {
        gather_fini(gather);
    }
}

static size_t aligned(size_t n_bytes) {
    return (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int is_contiguous(const sluice_input *input, size_t n_requests) {
    return n_requests == 1 && input->n_pieces <= 1;
}

/* Sums sizes of existing memory, so they cannot overflow. */
static size_t input_bytes(const sluice_request *const *requests, size_t n_requests, size_t index) {
    size_t sum = 0;
    for (size_t i = 0; i < n_requests; i++) {
        sum += requests[i]->inputs[index].n_bytes;
    }
    return sum;
}

int gather_begin(struct gather *gather, const sluice_request *const *requests, size_t n_requests) {
    size_t sum = 0;
    for (size_t i = 0; i < requests[0]->n_inputs; i++) {
        const sluice_input *input = &requests[0]->inputs[i];
        if (input->datatype != SLUICE_BYTES && !is_contiguous(input, n_requests)) {
            sum += aligned(input_bytes(requests, n_requests, i));
        }
    }
    if (gather->n_bytes < sum) {
        size_t roomy = aligned(sum + sum / 4);
        gather_fini(gather);
        gather->bytes = aligned_alloc(ALIGNMENT, roomy);
        gather->n_bytes = gather->bytes ? roomy : 0;
    }
    gather->n_used = 0;
    return gather->n_bytes >= sum;
}

static void copy_pieces(const sluice_request *const *requests, size_t n_requests, size_t index,
                        unsigned char *to) {
    for (size_t i = 0; i < n_requests; i++) {
        const sluice_input *input = &requests[i]->inputs[index];
        for (size_t k = 0; k < input->n_pieces; k++) {
            if (input->pieces[k].n_bytes > 0) {
                memcpy(to, input->pieces[k].data, input->pieces[k].n_bytes);
                to += input->pieces[k].n_bytes;
            }
        }
    }
}

const void *gather_input(struct gather *gather, const sluice_request *const *requests,
                         size_t n_requests, size_t index, size_t *n_bytes) {
    static const uint64_t nothing = 0;
    const sluice_input *input = &requests[0]->inputs[index];
    *n_bytes = input_bytes(requests, n_requests, index);
    if (*n_bytes == 0) { /* libraries require an address */
        return &nothing;
    }
    if (is_contiguous(input, n_requests)) {
        return input->pieces[0].data;
    }
    unsigned char *to = gather->bytes + gather->n_used;
    copy_pieces(requests, n_requests, index, to);
    gather->n_used += aligned(*n_bytes);
    return to;
}

int gather_holds(const struct gather *gather, const void *at) {
    uintptr_t from = (uintptr_t)gather->bytes, address = (uintptr_t)at;
    return address >= from && address < from + gather->n_bytes;
}

const int64_t *gather_dims(const sluice_request *const *requests, size_t n_requests, size_t index,
                           int64_t dims[MAX_RANK]) {
    const sluice_input *input = &requests[0]->inputs[index];
    if (n_requests == 1) {
        return input->dims;
    }
    memcpy(dims, input->dims, input->rank * sizeof(*dims));
    for (size_t i = 1; i < n_requests; i++) {
        dims[0] += requests[i]->inputs[index].dims[0];
    }
    return dims;
}

/* ---- outputs --------------------------------------------------------------------------------- */

struct results *results_new(size_t n, size_t n_requests) {
    struct results *results = calloc(1, sizeof(*results) + n * sizeof(results->items[0]));
    if (results) {
        results->n = n;
        atomic_init(&results->n_refs, n_requests);
    }
    return results;
}

void results_free(struct results *results) {
    results->free_values(results);
    for (size_t i = 0; i < results->n; i++) {
        free(results->items[i].block);
    }
    free(results);
}

void results_release(void *cookie) {
    struct results *results = cookie;
    if (atomic_fetch_sub_explicit(&results->n_refs, 1, memory_order_acq_rel) == 1) {
        results_free(results);
    }
}

static int count_of(const int64_t *dims, size_t rank, size_t *count) {
    *count = 1;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || __builtin_mul_overflow(*count, (size_t)dims[i], count)) {
            return 0;
        }
    }
    return 1;
}

int result_count(const struct result *result, size_t *count) {
    return count_of(result->dims, result->rank, count);
}

sluice_status result_copy_bytes(struct result *result, sluice_error *error) {
    result->block = malloc(result->n_bytes + 1);
    if (!result->block) {
        return error_no_memory(error, "an output");
    }
    memcpy(result->block, result->next, result->n_bytes);
    result->next = result->block;
    return SLUICE_OK;
}

/* A graph may pass an input through as an output. The interface allows it for the request's own
 * memory; gathered memory is overwritten by the next batch and must be copied. */
sluice_status result_set_data(struct result *result, const void *data, size_t count,
                              const struct gather *gather, sluice_error *error) {
    result->next = data ? data : (const void *)""; /* an empty tensor has no address */
    if (__builtin_mul_overflow(count, result->n_element_bytes, &result->n_bytes)) {
        return error_set(error, SLUICE_INTERNAL, "an output is larger than memory");
    }
    result->n_all_bytes = result->n_bytes;
    return gather_holds(gather, result->next) ? result_copy_bytes(result, error) : SLUICE_OK;
}

sluice_status result_split(struct result *result, const char *name, uint64_t n_rows,
                           sluice_error *error) {
    if (result->rank == 0 || (uint64_t)result->dims[0] != n_rows) {
        return error_set(
            error, SLUICE_INTERNAL, "output \"%.100s\" of a batch of %llu rows has %lld", name,
            (unsigned long long)n_rows, (long long)(result->rank ? result->dims[0] : 0));
    }
    count_of(result->dims + 1, result->rank - 1, &result->n_row_elements);
    return SLUICE_OK;
}

/* The bytes of the next `n` elements; for BYTES, by their length prefixes. */
static size_t bytes_of(const struct result *result, size_t n) {
    size_t n_bytes = 0;
    if (result->datatype != SLUICE_BYTES) {
        return n * result->n_element_bytes;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t length;
        memcpy(&length, result->next + n_bytes, sizeof(length));
        n_bytes += sizeof(length) + length;
    }
    return n_bytes;
}

/* Takes the next `n_rows` rows of a result, or all of it when the batch is not split (`split` 0).
 * The dims of *output belong to the result and are read before the next call. */
static void take_rows(struct result *result, int split, uint64_t n_rows, sluice_output *output) {
    size_t n_bytes = result->n_bytes;
    if (split) { /* result_split checked the total, so this is within bounds */
        n_bytes = bytes_of(result, (size_t)n_rows * result->n_row_elements);
        result->dims[0] = (int64_t)n_rows;
    }
    output->datatype = result->datatype;
    output->dims = result->dims;
    output->rank = result->rank;
    output->data = result->next;
    output->n_bytes = n_bytes;
    result->next += n_bytes;
    result->n_bytes -= n_bytes;
}

/* ---- output map ------------------------------------------------------------------------------ */

int output_map_init(struct output_map *output_map, size_t n_outputs) {
    *output_map = (struct output_map){.n_outputs = n_outputs};
    output_map->slots = calloc(n_outputs + 1, sizeof(*output_map->slots));
    output_map->chosen = calloc(n_outputs + 1, sizeof(*output_map->chosen));
    output_map->taken = calloc(n_outputs + 1, sizeof(*output_map->taken));
    output_map->outputs = calloc(n_outputs + 1, sizeof(*output_map->outputs));
    return output_map->slots && output_map->chosen && output_map->taken && output_map->outputs;
}

void output_map_fini(struct output_map *output_map) {
    free(output_map->slots);
    free(output_map->chosen);
    free(output_map->taken);
    free(output_map->outputs);
}

void output_map_select(struct output_map *output_map, const sluice_request *const *requests,
                       size_t n_requests) {
    output_map->n_chosen = 0;
    for (size_t i = 0; i < output_map->n_outputs; i++) {
        output_map->slots[i] = NO_SLOT;
    }
    for (size_t i = 0; i < n_requests; i++) {
        for (size_t k = 0; k < requests[i]->n_wanted; k++) {
            uint32_t index = requests[i]->wanted[k];
            if (output_map->slots[index] == NO_SLOT) {
                output_map->slots[index] = (uint32_t)output_map->n_chosen;
                output_map->chosen[output_map->n_chosen++] = index;
            }
        }
    }
}

/* Takes rows of every result for every request, wanted or not, so that the next request finds its
 * own. */
static void fill_outputs(struct output_map *output_map, struct results *results,
                         const sluice_request *request, int split) {
    for (size_t i = 0; i < results->n; i++) {
        take_rows(&results->items[i], split, request->batch, &output_map->taken[i]);
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        output_map->outputs[i] = output_map->taken[output_map->slots[request->wanted[i]]];
        output_map->outputs[i].index = request->wanted[i];
    }
}

void output_map_respond(struct output_map *output_map, const sluice_host *host,
                        struct results *results, const sluice_request *const *requests,
                        size_t n_requests) {
    for (size_t i = 0; i < n_requests; i++) {
        fill_outputs(output_map, results, requests[i], n_requests > 1);
        sluice_response response = {.size = sizeof(response),
                                    .outputs = output_map->outputs,
                                    .n_outputs = requests[i]->n_wanted,
                                    .final = 1,
                                    .release = results_release,
                                    .cookie = results};
        host->respond(requests[i], &response);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void reject_request(const struct batch *batch, const sluice_request *request,
                           sluice_status status, const char *sentence) {
    sluice_response response = {
        .size = sizeof(response), .status = status, .error = sentence, .final = 1};
    batch->host->respond(request, &response);
}

static void run_alone(struct batch *batch, const sluice_request *request) {
    sluice_error error;
    sluice_status status = batch->run(batch->runner, &request, 1, &error);
    if (status != SLUICE_OK) {
        reject_request(batch, request, status, error.text);
    }
}

static int live_reserve(struct batch *batch, size_t n) {
    if (batch->n_live < n) {
        const sluice_request **grown = realloc(batch->live, n * sizeof(*grown));
        if (!grown) {
            return 0;
        }
        batch->live = grown;
        batch->n_live = n;
    }
    return 1;
}

/* Answers the cancelled requests. Returns: the number of others, in batch->live. */
static size_t live_collect(struct batch *batch, const sluice_request *const *requests, size_t n) {
    size_t n_live = 0;
    for (size_t i = 0; i < n; i++) {
        if (batch->host->is_cancelled(requests[i])) {
            reject_request(batch, requests[i], SLUICE_CANCELLED, "cancelled before it was run");
        } else {
            batch->live[n_live++] = requests[i];
        }
    }
    return n_live;
}

/* Recursion: as deep as the batch can be halved. */
static void run_halves(struct batch *batch, const sluice_request *const *requests, size_t n) {
    sluice_error error;
    if (n == 1) {
        run_alone(batch, requests[0]);
    } else if (batch->run(batch->runner, requests, n, &error) != SLUICE_OK) {
        run_halves(batch, requests, n / 2);
        run_halves(batch, requests + n / 2, n - n / 2);
    }
}

void batch_execute(struct batch *batch, const sluice_request *const *requests, size_t n) {
    if (!live_reserve(batch, n)) {
        for (size_t i = 0; i < n; i++) {
            reject_request(batch, requests[i], SLUICE_NO_MEMORY, "out of memory for the batch");
        }
        return;
    }
    n = live_collect(batch, requests, n);
    if (n > 1 && (!batch->can_share || batch->can_share(batch->runner, batch->live, n))) {
        run_halves(batch, batch->live, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        run_alone(batch, batch->live[i]);
    }
}

void batch_fini(struct batch *batch) {
    free(batch->live);
}

uint64_t batch_rows(const sluice_request *const *requests, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += requests[i]->batch;
    }
    return sum;
}
