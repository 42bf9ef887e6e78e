/* A backend for tests of sequences, written from the public header alone: SUM is the sum of what
 * came as INPUT since the sequence began. Where its model has CORRID, sums are kept by that, else
 * by the row of the batch. ROW is the row, ROWS how many there were, INSTANCE whose. A request's
 * parameter `delay_us` makes its execution slow, `fail` makes it fail.
 *
 * A row that goes on and never began fails. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/backend.h"

static const sluice_host *the_host;

struct sluice_model {
    int unused;
};

enum { ROWS = 1024, KEY_BYTES = 160, KEYS = 4096 };

struct state {
    char key[KEY_BYTES];
    size_t key_bytes;
    int open;
    int32_t sum;
};

struct sluice_instance {
    uint32_t index;
    struct state rows[ROWS];
    struct state keys[KEYS];
    size_t n_keys;
};

/* What one request says. */
struct said {
    int start, end, ready;
    int32_t input;
    const void *key;
    size_t key_bytes;
};

static struct sluice_model the_model;

static sluice_status model_open(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    (void)args, (void)error;
    *model = &the_model;
    return SLUICE_OK;
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)model, (void)error;
    info->takes_any = 1;
    return SLUICE_OK;
}

static void model_close(sluice_model *model) {
    (void)model;
}

static sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    (void)model, (void)error;
    *instance = calloc(1, sizeof(**instance));
    if (!*instance) {
        return SLUICE_NO_MEMORY;
    }
    (*instance)->index = index;
    return SLUICE_OK;
}

static void instance_close(sluice_instance *instance) {
    free(instance);
}

static int flag_of(const sluice_input *input) {
    int32_t whole;
    float number;
    if (input->datatype == SLUICE_FP32) {
        memcpy(&number, input->pieces[0].data, sizeof(number));
        return number != 0;
    }
    if (input->datatype == SLUICE_BOOL) {
        return *(const unsigned char *)input->pieces[0].data;
    }
    memcpy(&whole, input->pieces[0].data, sizeof(whole));
    return whole;
}

static struct said said_by(const sluice_request *request) {
    struct said said = {.ready = 1};
    for (size_t i = 0; i < request->n_inputs; i++) {
        const sluice_input *input = &request->inputs[i];
        if (strcmp(input->name, "START") == 0) {
            said.start = flag_of(input);
        } else if (strcmp(input->name, "END") == 0) {
            said.end = flag_of(input);
        } else if (strcmp(input->name, "READY") == 0) {
            said.ready = flag_of(input);
        } else if (strcmp(input->name, "CORRID") == 0) {
            said.key = input->pieces[0].data;
            said.key_bytes = input->pieces[0].n_bytes;
        } else {
            memcpy(&said.input, input->pieces[0].data, sizeof(said.input));
        }
    }
    return said;
}

static struct state *state_of(sluice_instance *instance, const struct said *said, size_t row) {
    if (!said->key || said->key_bytes > KEY_BYTES) {
        return row < ROWS ? &instance->rows[row] : NULL;
    }
    for (size_t i = 0; i < instance->n_keys; i++) {
        struct state *state = &instance->keys[i];
        if (state->key_bytes == said->key_bytes &&
            memcmp(state->key, said->key, said->key_bytes) == 0) {
            return state;
        }
    }
    if (instance->n_keys == KEYS) {
        return NULL;
    }
    struct state *state = &instance->keys[instance->n_keys++];
    memcpy(state->key, said->key, said->key_bytes);
    state->key_bytes = said->key_bytes;
    return state;
}

static void refuse(const sluice_request *request, const char *sentence) {
    sluice_response response = {
        .size = sizeof(response), .status = SLUICE_INTERNAL, .error = sentence, .final = 1};
    the_host->respond(request, &response);
}

static void answer(const sluice_request *request, const int32_t numbers[4]) {
    static const int64_t dims[2] = {1, 1};
    sluice_output outputs[4];
    int32_t *block = malloc(4 * sizeof(*block));
    if (!block) {
        refuse(request, "out of memory");
        return;
    }
    memcpy(block, numbers, 4 * sizeof(*block));
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
                                .final = 1,
                                .release = free,
                                .cookie = block};
    the_host->respond(request, &response);
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

static void execute_one(sluice_instance *instance, const sluice_request *request, size_t row,
                        size_t rows) {
    struct said said = said_by(request);
    struct state *state = said.ready ? state_of(instance, &said, row) : NULL;
    int64_t ignored;
    if (!said.ready) {
        static const int32_t none[4] = {-1, -1, -1, -1};
        answer(request, none);
        return;
    }
    if (!state || (!said.start && !state->open)) {
        refuse(request, "it goes on and never began");
        return;
    }
    state->sum = (said.start ? 0 : state->sum) + said.input;
    state->open = !said.end;
    int32_t numbers[4] = {state->sum, (int32_t)row, (int32_t)rows, (int32_t)instance->index};
    if (has_param(request, "fail", &ignored)) {
        refuse(request, "as it was told to");
    } else {
        answer(request, numbers);
    }
}

/* Until the request is cancelled. */
static void wait_for(const sluice_request *request) {
    int64_t us;
    if (has_param(request, "delay_us", &us)) {
        for (; us > 0 && !the_host->is_cancelled(request); us -= 2000) {
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        }
    }
}

static void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        wait_for(requests[i]);
    }
    for (size_t i = 0; i < n; i++) {
        execute_one(instance, requests[i], i, n);
    }
}

static const char *const extensions[] = {NULL};

static const sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "adder",
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
