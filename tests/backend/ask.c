/* Building requests, and looking at answers with the interface's comments in hand. */
#include "ask.h"

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

void ask_init(struct ask *ask, uint64_t batch) {
    memset(ask, 0, sizeof(*ask));
    pthread_mutex_init(&ask->lock, NULL);
    pthread_cond_init(&ask->answered, NULL);
    ask->request = (sluice_request){.size = sizeof(ask->request),
                                    .host = ask,
                                    .id = "",
                                    .batch = batch,
                                    .inputs = ask->inputs,
                                    .wanted = ask->wanted};
}

/* An address of its own even for nothing, never to be read. */
static void *dup_bytes(const void *data, size_t n_bytes) {
    void *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    if (n_bytes) {
        memcpy(copy, data, n_bytes);
    }
    return copy;
}

void ask_input(struct ask *ask, uint32_t index, const char *name, sluice_datatype datatype,
               const int64_t *dims, size_t rank, const void *data, size_t n_bytes) {
    size_t position = ask->request.n_inputs++;
    assert_true(position < ASK_MAX_TENSORS && rank <= ASK_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        ask->dims[position][i] = dims[i];
    }
    ask->pieces[position][0] = (sluice_piece){dup_bytes(data, n_bytes), n_bytes};
    ask->inputs[position] = (sluice_input){.index = index,
                                           .datatype = datatype,
                                           .name = name,
                                           .dims = ask->dims[position],
                                           .rank = rank,
                                           .n_bytes = n_bytes,
                                           .pieces = ask->pieces[position],
                                           .n_pieces = n_bytes ? 1 : 0};
}

void ask_split(struct ask *ask, size_t position, size_t at) {
    sluice_input *input = &ask->inputs[position];
    assert_true(input->n_pieces > 0 && input->n_pieces < ASK_MAX_PIECES);
    sluice_piece *last = &ask->pieces[position][input->n_pieces - 1];
    char *whole = (char *)(uintptr_t)last->data;
    size_t n_bytes = last->n_bytes;
    last[0] = (sluice_piece){dup_bytes(whole, at), at};
    last[1] = (sluice_piece){dup_bytes(whole + at, n_bytes - at), n_bytes - at};
    input->n_pieces++;
    free(whole);
}

void ask_want(struct ask *ask, uint32_t index) {
    assert_true(ask->request.n_wanted < ASK_MAX_TENSORS);
    ask->wanted[ask->request.n_wanted++] = index;
}

/* A BYTES tensor's bytes must be walked to know that they are as many elements as its shape says.
 */
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
    if (output->rank > ASK_MAX_RANK) {
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

static const char *complaint(const struct ask *ask, const sluice_response *response) {
    if (ask->is_final) {
        return "an answer after the final one";
    }
    if (ask->n_answers == ASK_MAX_ANSWERS) {
        return "too many answers";
    }
    if (response->size < sizeof(*response)) {
        return "size is not set";
    }
    if (response->status != SLUICE_OK) {
        return response->error && response->error[0] ? NULL : "a failure without a sentence";
    }
    if (response->n_outputs != ask->request.n_wanted) {
        return "not as many outputs as wanted";
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        if (response->outputs[i].index != ask->request.wanted[i]) {
            return "outputs that are not those wanted, in that order";
        }
        const char *found = output_complaint(&response->outputs[i]);
        if (found) {
            return found;
        }
    }
    return NULL;
}

static void answer_keep(struct answer *answer, const sluice_response *response) {
    answer->status = response->status;
    answer->final = response->final;
    answer->release = response->release;
    answer->cookie = response->cookie;
    if (response->status != SLUICE_OK) {
        snprintf(answer->error, sizeof(answer->error), "%s", response->error);
        return;
    }
    answer->n_outputs = response->n_outputs;
    for (size_t i = 0; i < response->n_outputs; i++) {
        answer->outputs[i] = response->outputs[i];
        answer->outputs[i].dims = answer->dims[i];
        for (size_t k = 0; k < response->outputs[i].rank; k++) {
            answer->dims[i][k] = response->outputs[i].dims[k];
        }
    }
}

void ask_take(struct ask *ask, const sluice_response *response) {
    pthread_mutex_lock(&ask->lock);
    const char *found = complaint(ask, response);
    if (found) {
        ask->complaint = ask->complaint ? ask->complaint : found;
        if (response->release) {
            response->release(response->cookie);
        }
    } else {
        answer_keep(&ask->answers[ask->n_answers++], response);
    }
    ask->is_final = ask->is_final || response->final;
    pthread_cond_broadcast(&ask->answered);
    pthread_mutex_unlock(&ask->lock);
}

void ask_computed(struct ask *ask, bool possible) {
    pthread_mutex_lock(&ask->lock);
    if (!ask->complaint && (ask->n_answers > 0 || !possible)) {
        ask->complaint = "been computed, as it was said, at a time that can't be";
    }
    pthread_mutex_unlock(&ask->lock);
}

const struct answer *ask_wait(struct ask *ask) {
    pthread_mutex_lock(&ask->lock);
    while (!ask->is_final) {
        pthread_cond_wait(&ask->answered, &ask->lock);
    }
    const char *found = ask->complaint;
    size_t n = ask->n_answers;
    pthread_mutex_unlock(&ask->lock);
    if (found) {
        fail_msg("an answer has %s", found);
    }
    return &ask->answers[n - 1];
}

const struct answer *ask_good(struct ask *ask) {
    const struct answer *answer = ask_wait(ask);
    if (answer->status != SLUICE_OK) {
        fail_msg("status %d: %s", (int)answer->status, answer->error);
    }
    return answer;
}

void ask_bad(struct ask *ask, sluice_status status, const char *part) {
    const struct answer *answer = ask_wait(ask);
    if (answer->status != status || !strstr(answer->error, part)) {
        fail_msg("expected status %d and \"%s\", got %d and \"%s\"", (int)status, part,
                 (int)answer->status, answer->error);
    }
}

void ask_fini(struct ask *ask) {
    for (size_t i = 0; i < ask->n_answers; i++) {
        if (ask->answers[i].release) {
            ask->answers[i].release(ask->answers[i].cookie);
        }
    }
    for (size_t i = 0; i < ask->request.n_inputs; i++) {
        free((void *)(uintptr_t)ask->pieces[i][0].data);
        for (size_t k = 1; k < ask->inputs[i].n_pieces; k++) {
            free((void *)(uintptr_t)ask->pieces[i][k].data);
        }
    }
    pthread_cond_destroy(&ask->answered);
    pthread_mutex_destroy(&ask->lock);
}
