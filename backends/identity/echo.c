/* Output i is input i: its bytes in place when they are contiguous in the request, else copied into
 * one block. */
#include "identity/identity.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIGNMENT = 16, SLICE_US = 5000 };

void scratch_fini(struct scratch *scratch) {
    free(scratch->outputs);
    *scratch = (struct scratch){0};
}

static int scratch_reserve(struct scratch *scratch, size_t n_outputs) {
    if (scratch->n_outputs < n_outputs) {
        sluice_output *grown = realloc(scratch->outputs, n_outputs * sizeof(*grown));
        if (!grown) {
            return 0;
        }
        scratch->outputs = grown;
        scratch->n_outputs = n_outputs;
    }
    return 1;
}

static void reject_request(const sluice_host *host, const sluice_request *request,
                           sluice_status status, const char *sentence) {
    sluice_response response = {
        .size = sizeof(response), .status = status, .error = sentence, .final = 1};
    host->respond(request, &response);
}

/* Optional inputs may be missing, so position and index differ. */
static const sluice_input *input_find(const sluice_request *request, uint32_t index) {
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (request->inputs[i].index == index) {
            return &request->inputs[i];
        }
    }
    return NULL;
}

static size_t aligned(size_t n_bytes) {
    return (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int needs_gather(const sluice_input *input) {
    return input->n_pieces > 1 && input->n_bytes > 0;
}

static void gather_pieces(const sluice_input *input, unsigned char *to) {
    for (size_t i = 0; i < input->n_pieces; i++) {
        if (input->pieces[i].n_bytes > 0) {
            memcpy(to, input->pieces[i].data, input->pieces[i].n_bytes);
            to += input->pieces[i].n_bytes;
        }
    }
}

/* Bytes needed for inputs that are not contiguous. Sums sizes of existing memory, so they cannot
 * overflow. */
static size_t gather_bytes(const sluice_request *request) {
    size_t sum = 0;
    for (size_t i = 0; i < request->n_wanted; i++) {
        const sluice_input *input = input_find(request, request->wanted[i]);
        if (input && needs_gather(input)) {
            sum += aligned(input->n_bytes);
        }
    }
    return sum;
}

/* Describes the wanted outputs, whose inputs are all present; copies into `block` where needed. */
static void outputs_fill(const sluice_request *request, sluice_output *outputs,
                         unsigned char *block) {
    for (size_t i = 0; i < request->n_wanted; i++) {
        const sluice_input *input = input_find(request, request->wanted[i]);
        outputs[i] = (sluice_output){.index = request->wanted[i],
                                     .datatype = input->datatype,
                                     .dims = input->dims,
                                     .rank = input->rank,
                                     .n_bytes = input->n_bytes};
        if (block && needs_gather(input)) {
            outputs[i].data = block;
            gather_pieces(input, block);
            block += aligned(input->n_bytes);
        } else if (input->n_pieces > 0) {
            outputs[i].data = input->pieces[0].data;
        }
    }
}

/* Returns: 1 when the request is still valid, because another answer can follow. */
static int respond_once(const sluice_host *host, const struct options *options,
                        struct scratch *scratch, const sluice_request *request, int32_t final) {
    size_t n_bytes = gather_bytes(request);
    void *block = n_bytes ? malloc(n_bytes) : NULL;
    if ((n_bytes && !block) || !scratch_reserve(scratch, request->n_wanted)) {
        free(block);
        reject_request(host, request, SLUICE_NO_MEMORY, "out of memory for the outputs");
        return 0;
    }
    sluice_response response = {.size = sizeof(response),
                                .outputs = scratch->outputs,
                                .n_outputs = request->n_wanted,
                                .params = options->echo_params ? request->params : NULL,
                                .n_params = options->echo_params ? request->n_params : 0,
                                .final = final,
                                .release = block ? free : NULL,
                                .cookie = block};
    outputs_fill(request, scratch->outputs, block);
    host->respond(request, &response);
    return !final;
}

/* Returns: 1 when the request was refused because an output's input is missing. */
static int reject_incomplete(const sluice_host *host, const sluice_request *request) {
    char text[96];
    for (size_t i = 0; i < request->n_wanted; i++) {
        unsigned index = request->wanted[i];
        if (!input_find(request, index)) {
            snprintf(text, sizeof(text), "output %u is input %u, which this request leaves out",
                     index, index);
            reject_request(host, request, SLUICE_INVALID_ARGUMENT, text);
            return 1;
        }
    }
    return 0;
}

static int all_cancelled(const sluice_host *host, const sluice_request *const *requests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!host->is_cancelled(requests[i])) {
            return 0;
        }
    }
    return 1;
}

static uint64_t monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Real time, not host->now_ns, which tests may replace. A slice may last longer on a busy machine:
 * the whole does not. */
static void wait_for(const sluice_host *host, uint64_t delay_us,
                     const sluice_request *const *requests, size_t n) {
    uint64_t now_us = delay_us > 0 ? monotonic_us() : 0, until_us = now_us + delay_us;
    while (now_us < until_us && !all_cancelled(host, requests, n)) {
        uint64_t left_us = until_us - now_us;
        struct timespec slice = {.tv_nsec =
                                     (long)((left_us < SLICE_US ? left_us : SLICE_US) * 1000)};
        nanosleep(&slice, NULL);
        now_us = monotonic_us();
    }
}

/* Parameters of one request. */
struct request_options {
    uint64_t n_responses;
    uint64_t fail_at; /* number of the answer, from 1, that is a final error; 0: none */
};

/* *value is unchanged when the parameter is absent or invalid. */
static void take_count(const sluice_param *param, const char *name, uint64_t *value) {
    if (strcmp(param->name, name) == 0 && param->kind == SLUICE_PARAM_INT64 && param->int64 >= 0) {
        *value = (uint64_t)param->int64;
    }
}

static struct request_options request_options_of(const struct options *options,
                                                 const sluice_request *request) {
    struct request_options request_options = {.n_responses = options->n_responses};
    for (size_t i = 0; options->by_request && i < request->n_params; i++) {
        take_count(&request->params[i], "responses", &request_options.n_responses);
        take_count(&request->params[i], "fail_at", &request_options.fail_at);
    }
    return request_options;
}

/* Sends the answers; none may follow the final one. */
static void respond_all(const sluice_host *host, const struct options *options,
                        struct scratch *scratch, const sluice_request *request) {
    struct request_options request_options = request_options_of(options, request);
    for (uint64_t i = 1; i <= request_options.n_responses; i++) {
        int32_t final = i == request_options.n_responses && !options->end_apart;
        if (i > 1) {
            wait_for(host, options->interval_us, &request, 1);
        }
        if (host->is_cancelled(request)) {
            reject_request(host, request, SLUICE_CANCELLED, "cancelled before its last answer");
            return;
        }
        if (i == request_options.fail_at) {
            reject_request(host, request, SLUICE_INTERNAL, "the answer that was to fail");
            return;
        }
        if (!respond_once(host, options, scratch, request, final)) {
            return;
        }
    }
    sluice_response end = {.size = sizeof(end), .final = 1};
    host->respond(request, &end);
}

static void echo(const sluice_host *host, const struct options *options, struct scratch *scratch,
                 const sluice_request *request) {
    if (host->is_cancelled(request)) {
        reject_request(host, request, SLUICE_CANCELLED, "cancelled before it was answered");
    } else if (options->fail) {
        reject_request(host, request, SLUICE_INTERNAL, options->fail);
    } else if (!reject_incomplete(host, request)) {
        respond_all(host, options, scratch, request);
    }
}

void echo_batch(const sluice_host *host, const struct options *options, struct scratch *scratch,
                const sluice_request *const *requests, size_t n) {
    wait_for(host, options->delay_us, requests, n);
    for (size_t i = 0; i < n; i++) {
        echo(host, options, scratch, requests[i]);
    }
}
