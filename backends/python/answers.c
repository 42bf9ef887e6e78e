/* The responses of a worker: their places are checked here, and datatype, shape and size by the
 * host. Outputs stay where they are, in the message or in a block, until the host releases them;
 * but the elements of BYTES are copied out of a block, because the worker could change their
 * lengths after they were checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python/instance.h"

void message_unref(struct message *message) {
    if (message && atomic_fetch_sub_explicit(&message->n_refs, 1, memory_order_acq_rel) == 1) {
        free(message);
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

static int grow_slots(sluice_instance *instance) {
    uint32_t n = instance->n_slots ? instance->n_slots * 2 : 64;
    struct slot *slots = realloc(instance->slots, n * sizeof(*slots));
    if (!slots) {
        return 0;
    }
    for (uint32_t i = instance->n_slots; i < n; i++) {
        slots[i] = (struct slot){.generation = 1, .next_free = i + 1 < n ? i + 2 : 0};
    }
    instance->free_slots = instance->n_slots + 1;
    instance->slots = slots;
    instance->n_slots = n;
    return 1;
}

uint64_t slot_take(sluice_instance *instance, const sluice_request *request) {
    if (instance->free_slots == 0 && !grow_slots(instance)) {
        return 0;
    }
    uint32_t index = instance->free_slots - 1;
    struct slot *slot = &instance->slots[index];
    instance->free_slots = slot->next_free;
    slot->request = request;
    slot->batch = instance->batch;
    return (uint64_t)slot->generation << 32 | index;
}

static struct slot *slot_of(sluice_instance *instance, uint64_t token) {
    uint32_t index = (uint32_t)token, generation = (uint32_t)(token >> 32);
    if (index >= instance->n_slots || instance->slots[index].generation != generation ||
        !instance->slots[index].request) {
        return NULL;
    }
    return &instance->slots[index];
}

const sluice_request *slot_find(sluice_instance *instance, uint64_t token) {
    struct slot *slot = slot_of(instance, token);
    return slot ? slot->request : NULL;
}

void slot_release(sluice_instance *instance, uint64_t token) {
    struct slot *slot = slot_of(instance, token);
    if (slot) {
        slot->request = NULL;
        slot->generation = slot->generation == UINT32_MAX ? 1 : slot->generation + 1;
        slot->next_free = instance->free_slots;
        instance->free_slots = (uint32_t)token + 1;
    }
}

void answers_fail(sluice_instance *instance, uint32_t batch, sluice_status status,
                  const char *text) {
    sluice_response response = {
        .size = sizeof(response), .status = status, .error = text, .final = 1};
    for (uint32_t i = 0;; i++) {
        const sluice_request *request = NULL;
        pthread_mutex_lock(&instance->lock);
        for (; i < instance->n_slots && !request; i++) {
            struct slot *slot = &instance->slots[i];
            if (slot->request && (batch == 0 || slot->batch == batch)) {
                request = slot->request;
                slot_release(instance, (uint64_t)slot->generation << 32 | i);
                break;
            }
        }
        pthread_mutex_unlock(&instance->lock);
        if (!request) {
            return;
        }
        instance->model->host->respond(request, &response);
    }
}

/* ---- responses ------------------------------------------------------------------------------- */

void held_release(void *cookie) {
    struct held *held = cookie;
    message_unref(held->message);
    if (held->block) {
        block_release(held->block);
    }
    free(held->copies);
    free(held);
}

/* The part of a RESULT that is worked on. */
struct result {
    sluice_instance *instance;
    struct message *message;
    struct wire_reader reader;
    struct wire_result head;
    struct block *block; /* one reference; NULL: the outputs are in the message */
    uint64_t output_bytes;
};

static int reserve(void **items, size_t *capacity, size_t n, size_t size) {
    if (n <= *capacity) {
        return 1;
    }
    void *grown = realloc(*items, n * size);
    if (!grown) {
        return 0;
    }
    *items = grown;
    *capacity = n;
    return 1;
}

const unsigned char *place_of(const struct message *message, uint32_t tail,
                              const struct block *block, const struct wire_output *tensor) {
    const unsigned char *base = block ? block->bytes : message->bytes + tail;
    uint64_t room = block ? block->n_bytes : message->n_bytes - tail;
    if (tensor->offset > room || tensor->n_bytes > room - tensor->offset) {
        return NULL;
    }
    return base + tensor->offset;
}

/* Reads the outputs of a response. Returns: 0 when memory is out. */
static int read_outputs(struct result *result, const struct wire_response *response,
                        uint64_t *copied_bytes) {
    struct answer_scratch *scratch = &result->instance->scratch;
    size_t n_dims = 0;
    *copied_bytes = 0;
    if (!reserve((void **)&scratch->outputs, &scratch->n_outputs, response->n_outputs,
                 sizeof(*scratch->outputs))) {
        return 0;
    }
    for (uint32_t i = 0; i < response->n_outputs; i++) {
        struct wire_output output;
        wire_read_output(&result->reader, &output);
        const unsigned char *data =
            place_of(result->message, result->head.tail, result->block, &output);
        if (result->reader.failed || !data) {
            result->reader.failed = 1;
            return 1;
        }
        if (!reserve((void **)&scratch->dims, &scratch->n_dims, n_dims + WIRE_MAX_RANK,
                     sizeof(*scratch->dims))) {
            return 0;
        }
        wire_copy_dims(&result->reader, &output, scratch->dims + n_dims);
        n_dims += output.rank;
        scratch->outputs[i] = (sluice_output){.index = output.index,
                                              .datatype = output.datatype,
                                              .rank = output.rank,
                                              .data = data,
                                              .n_bytes = output.n_bytes};
        result->output_bytes += output.n_bytes;
        *copied_bytes += result->block && output.datatype == SLUICE_BYTES ? output.n_bytes : 0;
    }
    if (result->block && *copied_bytes > result->block->n_bytes) {
        result->reader.failed = 1; /* they overlap */
        return 1;
    }
    n_dims = 0; /* the array has its final address now */
    for (uint32_t i = 0; i < response->n_outputs; i++) {
        scratch->outputs[i].dims = scratch->dims + n_dims;
        n_dims += scratch->outputs[i].rank;
    }
    return 1;
}

static int read_params(struct result *result, size_t *n) {
    struct answer_scratch *scratch = &result->instance->scratch;
    *n = wire_read_count(&result->reader, WIRE_PARAM_LEAST);
    if (!reserve((void **)&scratch->params, &scratch->n_params, *n, sizeof(*scratch->params))) {
        return 0;
    }
    for (size_t i = 0; i < *n; i++) {
        wire_read_param(&result->reader, &scratch->params[i]);
    }
    return 1;
}

/* Returns: NULL when out of memory. */
static struct held *held_new(struct result *result, size_t n_outputs, uint64_t copied_bytes) {
    struct held *held = calloc(1, sizeof(*held));
    unsigned char *copies = copied_bytes ? malloc(copied_bytes) : NULL;
    if (!held || (copied_bytes && !copies)) {
        free(held);
        free(copies);
        return NULL;
    }
    *held = (struct held){result->message, result->block, copies};
    atomic_fetch_add_explicit(&result->message->n_refs, 1, memory_order_relaxed);
    if (result->block) {
        block_ref(result->block);
    }
    for (size_t i = 0; i < n_outputs && copies; i++) {
        sluice_output *output = &result->instance->scratch.outputs[i];
        if (output->datatype == SLUICE_BYTES) {
            memcpy(copies, output->data, output->n_bytes);
            output->data = copies;
            copies += output->n_bytes;
        }
    }
    return held;
}

static void send(struct result *result, const sluice_request *request,
                 const struct wire_response *read, size_t n_params, uint64_t copied_bytes,
                 int no_memory) {
    const sluice_host *host = result->instance->model->host;
    char text[sizeof((sluice_error){{0}}.text)];
    sluice_response response = {
        .size = sizeof(response),
        .status = read->status,
        .final = read->final == WIRE_FINAL,
        .run_again = read->final == WIRE_RUN_AGAIN,
    };
    struct held *held = NULL;
    if (response.status == SLUICE_OK && !no_memory) {
        held = held_new(result, read->n_outputs, copied_bytes);
        no_memory = !held;
    }
    if (no_memory) {
        response.status = SLUICE_NO_MEMORY;
        response.error = "out of memory for the model's response";
    } else if (response.status != SLUICE_OK) {
        lines_copy_text(read->error.ptr, read->error.n_bytes, text, sizeof(text));
        response.error = text;
    } else {
        response.outputs = result->instance->scratch.outputs;
        response.n_outputs = read->n_outputs;
        response.params = result->instance->scratch.params;
        response.n_params = n_params;
        response.release = held_release;
        response.cookie = held;
    }
    host->respond(request, &response);
}

/* Reads and sends one response. Returns: 0 with `reason` when it breaks a rule. */
static int take_response(struct result *result, const char **reason) {
    struct wire_response read;
    uint64_t copied_bytes = 0;
    size_t n_params = 0;
    wire_read_response(&result->reader, &read);
    int ok = read.status != SLUICE_OK ||
             (read_outputs(result, &read, &copied_bytes) && read_params(result, &n_params));
    if (ok && result->reader.failed) {
        *reason = "a response is not well-formed";
        return 0;
    }
    pthread_mutex_lock(&result->instance->lock);
    const sluice_request *request = slot_find(result->instance, read.token);
    if (request && (read.final || !ok)) {
        slot_release(result->instance, read.token);
    }
    pthread_mutex_unlock(&result->instance->lock);
    if (!request) {
        *reason = "a response is to no request";
        return 0;
    }
    if (!ok) {
        read.final = WIRE_FINAL; /* what follows in the message cannot be read */
        *reason = "out of memory for a response";
    }
    send(result, request, &read, n_params, copied_bytes, !ok);
    return ok;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Returns: whether no request of the batch has its final response, after which it may be gone. */
static int all_open(sluice_instance *instance) {
    size_t n = 0;
    pthread_mutex_lock(&instance->lock);
    for (uint32_t i = 0; i < instance->n_slots; i++) {
        const struct slot *slot = &instance->slots[i];
        n += slot->request && slot->batch == instance->batch ? 1 : 0;
    }
    pthread_mutex_unlock(&instance->lock);
    return n == instance->n_requests;
}

static void report_compute(struct result *result) {
    sluice_instance *instance = result->instance;
    const sluice_host *host = instance->model->host;
    uint64_t now_ns = host->now_ns(), began_ns = result->head.began_ns,
             ended_ns = result->head.ended_ns;
    if (!instance->model->decoupled && all_open(instance) && began_ns >= instance->sent_ns &&
        ended_ns >= began_ns && ended_ns <= now_ns) {
        host->computed(instance->requests, instance->n_requests, began_ns, ended_ns);
    }
}

static int take_freed(struct result *result, const char **reason) {
    uint32_t n = wire_read_count(&result->reader, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        if (!pool_give_back(result->instance->pool, wire_read_u32(&result->reader), BLOCK_INPUT)) {
            *reason = "it returned a block that it does not have";
            return 0;
        }
    }
    *reason = "a result is not well-formed";
    return !result->reader.failed;
}

static int take_responses(struct result *result, const char **reason) {
    sluice_instance *instance = result->instance;
    if (result->head.block != 0) {
        result->block = pool_accept(instance->pool, result->head.block);
        if (!result->block) {
            *reason = "outputs are in a block that it does not have";
            return 0;
        }
        pthread_mutex_lock(&instance->lock);
        instance->granted = instance->granted == result->head.block ? 0 : instance->granted;
        pthread_mutex_unlock(&instance->lock);
    }
    for (uint32_t i = 0; i < result->head.n_responses; i++) {
        if (!take_response(result, reason)) {
            return 0;
        }
    }
    return take_freed(result, reason);
}

int answers_take(sluice_instance *instance, struct message *message, const char **reason) {
    struct result result = {.instance = instance, .message = message};
    wire_reader_init(&result.reader, message->bytes, message->n_bytes);
    wire_read_result(&result.reader, &result.head);
    if (result.reader.failed) {
        *reason = "a result is not well-formed";
        return 0;
    }
    pthread_mutex_lock(&instance->lock);
    int fits = !result.head.done || (instance->executing && instance->batch == result.head.batch);
    pthread_mutex_unlock(&instance->lock);
    if (!fits) {
        *reason = "it ended a batch that it was not given";
        return 0;
    }
    if (result.head.done) {
        report_compute(&result);
    }
    int ok = take_responses(&result, reason);
    if (result.block) {
        block_release(result.block);
    }
    if (!ok || !result.head.done) {
        return ok;
    }
    if (!instance->model->decoupled) {
        answers_fail(instance, result.head.batch, SLUICE_INTERNAL,
                     "the model returned no response to the request");
    }
    pthread_mutex_lock(&instance->lock);
    instance->executing = 0;
    instance->last_output_bytes = result.output_bytes;
    pthread_cond_broadcast(&instance->changed);
    pthread_mutex_unlock(&instance->lock);
    return 1;
}

void answers_fini(sluice_instance *instance) {
    free(instance->scratch.outputs);
    free(instance->scratch.dims);
    free(instance->scratch.params);
    instance->scratch = (struct answer_scratch){0};
    free(instance->slots);
}
