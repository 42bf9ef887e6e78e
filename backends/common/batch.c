/* Runs a batch: drops cancelled requests, runs the rest together. A batch that fails is halved, so
 * that one bad request of n costs about 2 log2(n) runs. */
#include "common/batch.h"

#include <stdlib.h>

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

static int runs_together(struct batch *batch, const sluice_request *const *requests, size_t n) {
    sluice_error error;
    return batch->run(batch->runner, requests, n, &error) == SLUICE_OK;
}

/* Recursion: as deep as the batch can be halved. */
static void run_halves(struct batch *batch, const sluice_request *const *requests, size_t n) {
    if (n == 1) {
        run_alone(batch, requests[0]);
    } else if (!runs_together(batch, requests, n)) {
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
