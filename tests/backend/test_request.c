/* Builds requests, and checks answers against the interface. */
#include "test_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host.h"

size_t datatype_bytes(sluice_datatype datatype) {
    static const unsigned char sizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0, 2};
    return sizes[datatype];
}

void test_request_init(struct test_request *test_request, uint64_t batch) {
    memset(test_request, 0, sizeof(*test_request));
    pthread_mutex_init(&test_request->lock, NULL);
    pthread_cond_init(&test_request->answered, NULL);
    test_request->request = (sluice_request){.size = sizeof(test_request->request),
                                             .host = test_request,
                                             .id = "",
                                             .batch = batch,
                                             .inputs = test_request->inputs,
                                             .wanted = test_request->wanted};
}

/* A unique address even for no bytes, never to be read. */
static void *dup_bytes(const void *data, size_t n_bytes) {
    void *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    if (n_bytes) {
        memcpy(copy, data, n_bytes);
    }
    return copy;
}

void test_request_add_input(struct test_request *test_request, uint32_t index, const char *name,
                            sluice_datatype datatype, const int64_t *dims, size_t rank,
                            const void *data, size_t n_bytes) {
    size_t position = test_request->request.n_inputs++;
    assert_true(position < TEST_MAX_TENSORS && rank <= TEST_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        test_request->dims[position][i] = dims[i];
    }
    test_request->pieces[position][0] = (sluice_piece){dup_bytes(data, n_bytes), n_bytes};
    test_request->inputs[position] = (sluice_input){.index = index,
                                                    .datatype = datatype,
                                                    .name = name,
                                                    .dims = test_request->dims[position],
                                                    .rank = rank,
                                                    .n_bytes = n_bytes,
                                                    .pieces = test_request->pieces[position],
                                                    .n_pieces = n_bytes ? 1 : 0};
}

void test_request_split_input(struct test_request *test_request, size_t position, size_t at) {
    sluice_input *input = &test_request->inputs[position];
    assert_true(input->n_pieces > 0 && input->n_pieces < TEST_MAX_PIECES);
    sluice_piece *last = &test_request->pieces[position][input->n_pieces - 1];
    char *whole = (char *)(uintptr_t)last->data;
    size_t n_bytes = last->n_bytes;
    last[0] = (sluice_piece){dup_bytes(whole, at), at};
    last[1] = (sluice_piece){dup_bytes(whole + at, n_bytes - at), n_bytes - at};
    input->n_pieces++;
    free(whole);
}

void test_request_want_output(struct test_request *test_request, uint32_t index) {
    assert_true(test_request->request.n_wanted < TEST_MAX_TENSORS);
    test_request->wanted[test_request->request.n_wanted++] = index;
}

/* The lengths of a BYTES tensor's elements must add up to its size. */
static bool bytes_fit(const sluice_output *output, size_t count) {
    size_t at = 0;
    while (count > 0 && output->n_bytes - at >= 4) {
        uint32_t length;
        memcpy(&length, (const char *)output->data + at, 4);
        if (length > output->n_bytes - at - 4) {
            return false;
        }
        at += 4 + length;
        count--;
    }
    return count == 0 && at == output->n_bytes;
}

static const char *output_complaint(const sluice_output *output) {
    size_t count = 1, size = datatype_bytes(output->datatype);
    if (output->rank > TEST_MAX_RANK) {
        return "more dimensions than any model here has";
    }
    for (size_t i = 0; i < output->rank; i++) {
        if (output->dims[i] < 0) {
            return "a negative dimension";
        }
        count *= (size_t)output->dims[i];
    }
    if (output->n_bytes && (!output->data || (size && (uintptr_t)output->data % size))) {
        return "data that is missing or not aligned";
    }
    if (size ? output->n_bytes != count * size : !bytes_fit(output, count)) {
        return "n_bytes is not what datatype and dims say";
    }
    return NULL;
}

static const char *violation(const struct test_request *test_request,
                             const sluice_response *response) {
    if (test_request->is_final) {
        return "an answer after the final one";
    }
    if (test_request->n_responses == TEST_MAX_RESPONSES) {
        return "too many answers";
    }
    if (response->size < sizeof(*response)) {
        return "size is not set";
    }
    if (response->status != SLUICE_OK) {
        return response->error && response->error[0] ? NULL : "a failure without a sentence";
    }
    if (response->n_outputs != test_request->request.n_wanted) {
        return "not as many outputs as wanted";
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        if (response->outputs[i].index != test_request->request.wanted[i]) {
            return "outputs that are not those wanted, in that order";
        }
        const char *found = output_complaint(&response->outputs[i]);
        if (found) {
            return found;
        }
    }
    return NULL;
}

static void answer_keep(struct test_response *response_kept, const sluice_response *response) {
    response_kept->status = response->status;
    response_kept->final = response->final;
    response_kept->release = response->release;
    response_kept->cookie = response->cookie;
    if (response->status != SLUICE_OK) {
        snprintf(response_kept->error, sizeof(response_kept->error), "%s", response->error);
        return;
    }
    response_kept->n_outputs = response->n_outputs;
    for (size_t i = 0; i < response->n_outputs; i++) {
        response_kept->outputs[i] = response->outputs[i];
        response_kept->outputs[i].dims = response_kept->dims[i];
        for (size_t k = 0; k < response->outputs[i].rank; k++) {
            response_kept->dims[i][k] = response->outputs[i].dims[k];
        }
    }
}

void test_request_on_response(struct test_request *test_request, const sluice_response *response) {
    pthread_mutex_lock(&test_request->lock);
    const char *found = violation(test_request, response);
    if (found) {
        test_request->violation = test_request->violation ? test_request->violation : found;
        if (response->release) {
            response->release(response->cookie);
        }
    } else {
        answer_keep(&test_request->responses[test_request->n_responses++], response);
    }
    test_request->is_final = test_request->is_final || response->final;
    pthread_cond_broadcast(&test_request->answered);
    pthread_mutex_unlock(&test_request->lock);
}

void test_request_on_computed(struct test_request *test_request, bool possible) {
    pthread_mutex_lock(&test_request->lock);
    if (!test_request->violation && (test_request->n_responses > 0 || !possible)) {
        test_request->violation = "been computed, as it was said, at a time that can't be";
    }
    pthread_mutex_unlock(&test_request->lock);
}

const struct test_response *test_request_wait(struct test_request *test_request) {
    pthread_mutex_lock(&test_request->lock);
    while (!test_request->is_final) {
        pthread_cond_wait(&test_request->answered, &test_request->lock);
    }
    const char *found = test_request->violation;
    size_t n = test_request->n_responses;
    pthread_mutex_unlock(&test_request->lock);
    if (found) {
        fail_msg("an answer has %s", found);
    }
    return &test_request->responses[n - 1];
}

const struct test_response *test_request_expect_ok(struct test_request *test_request) {
    const struct test_response *response_kept = test_request_wait(test_request);
    if (response_kept->status != SLUICE_OK) {
        fail_msg("status %d: %s", (int)response_kept->status, response_kept->error);
    }
    return response_kept;
}

void test_request_expect_error(struct test_request *test_request, sluice_status status,
                               const char *part) {
    const struct test_response *response_kept = test_request_wait(test_request);
    if (response_kept->status != status || !strstr(response_kept->error, part)) {
        fail_msg("expected status %d and \"%s\", got %d and \"%s\"", (int)status, part,
                 (int)response_kept->status, response_kept->error);
    }
}

void test_request_fini(struct test_request *test_request) {
    for (size_t i = 0; i < test_request->n_responses; i++) {
        if (test_request->responses[i].release) {
            test_request->responses[i].release(test_request->responses[i].cookie);
        }
    }
    for (size_t i = 0; i < test_request->request.n_inputs; i++) {
        free((void *)(uintptr_t)test_request->pieces[i][0].data);
        for (size_t k = 1; k < test_request->inputs[i].n_pieces; k++) {
            free((void *)(uintptr_t)test_request->pieces[i][k].data);
        }
    }
    pthread_cond_destroy(&test_request->answered);
    pthread_mutex_destroy(&test_request->lock);
}
