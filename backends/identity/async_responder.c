/* A thread that answers queued batches, oldest first. The array passed to execute is invalid after
 * execute returned, so a batch copies the pointers; the requests live until their final answer. */
#include "identity/identity.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct batch {
    STAILQ_ENTRY(batch) link;
    size_t n;
    const sluice_request *requests[];
};

struct async_responder {
    const sluice_host *host;
    const struct options *options;
    struct scratch scratch; /* used by the thread */
    pthread_t thread;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    STAILQ_HEAD(, batch) batches;
    int stopping;
};

/* Waits for the oldest batch. Returns: NULL when stopping and no batch is left. */
static struct batch *batch_next(struct async_responder *responder) {
    pthread_mutex_lock(&responder->lock);
    while (STAILQ_EMPTY(&responder->batches) && !responder->stopping) {
        pthread_cond_wait(&responder->changed, &responder->lock);
    }
    struct batch *batch = STAILQ_FIRST(&responder->batches);
    if (batch) {
        STAILQ_REMOVE_HEAD(&responder->batches, link);
    }
    pthread_mutex_unlock(&responder->lock);
    return batch;
}

static void *responder_main(void *user) {
    struct async_responder *responder = user;
    struct batch *batch;
    while ((batch = batch_next(responder))) {
        echo_batch(responder->host, responder->options, &responder->scratch, batch->requests,
                   batch->n);
        free(batch);
    }
    return NULL;
}

static void async_responder_free(struct async_responder *responder) {
    pthread_cond_destroy(&responder->changed);
    pthread_mutex_destroy(&responder->lock);
    scratch_fini(&responder->scratch);
    free(responder);
}

struct async_responder *async_responder_start(const sluice_host *host,
                                              const struct options *options) {
    struct async_responder *responder = calloc(1, sizeof(*responder));
    if (!responder) {
        return NULL;
    }
    responder->host = host;
    responder->options = options;
    STAILQ_INIT(&responder->batches);
    pthread_mutex_init(&responder->lock, NULL);
    pthread_cond_init(&responder->changed, NULL);
    if (pthread_create(&responder->thread, NULL, responder_main, responder) != 0) {
        async_responder_free(responder);
        return NULL;
    }
    return responder;
}

void async_responder_push(struct async_responder *responder, const sluice_request *const *requests,
                          size_t n) {
    struct batch *batch = malloc(sizeof(*batch) + n * sizeof(requests[0]));
    if (!batch) {
        sluice_response response = {.size = sizeof(response),
                                    .status = SLUICE_NO_MEMORY,
                                    .error = "out of memory for the batch",
                                    .final = 1};
        for (size_t i = 0; i < n; i++) {
            responder->host->respond(requests[i], &response);
        }
        return;
    }
    batch->n = n;
    memcpy(batch->requests, requests, n * sizeof(requests[0]));
    pthread_mutex_lock(&responder->lock);
    STAILQ_INSERT_TAIL(&responder->batches, batch, link);
    pthread_cond_signal(&responder->changed);
    pthread_mutex_unlock(&responder->lock);
}

void async_responder_stop(struct async_responder *responder) {
    if (!responder) {
        return;
    }
    pthread_mutex_lock(&responder->lock);
    responder->stopping = 1;
    pthread_cond_signal(&responder->changed);
    pthread_mutex_unlock(&responder->lock);
    pthread_join(responder->thread, NULL);
    async_responder_free(responder);
}
