/* One thread and the batches it has still to answer, oldest first. The array given to execute is
 * gone when execute returns, so that a batch keeps the pointers; the requests themselves live until
 * their final answer. */
#include "identity/later.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "identity/echo.h"

struct batch {
    struct batch *next;
    size_t n;
    const sluice_request *requests[];
};

struct later {
    const sluice_host *host;
    const struct options *options;
    struct scratch scratch; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t changed;
    struct batch *first, **end; /* end: where the next one is linked */
    int stopping;
};

/* Returns: the oldest batch, waiting for one; NULL when there is none left and none will come. */
static struct batch *batch_next(struct later *later) {
    pthread_mutex_lock(&later->lock);
    while (!later->first && !later->stopping) {
        pthread_cond_wait(&later->changed, &later->lock);
    }
    struct batch *batch = later->first;
    if (batch) {
        later->first = batch->next;
        if (!later->first) {
            later->end = &later->first;
        }
    }
    pthread_mutex_unlock(&later->lock);
    return batch;
}

static void *run(void *cookie) {
    struct later *later = cookie;
    struct batch *batch;
    while ((batch = batch_next(later))) {
        echo_batch(later->host, later->options, &later->scratch, batch->requests, batch->n);
        free(batch);
    }
    return NULL;
}

static void later_free(struct later *later) {
    pthread_cond_destroy(&later->changed);
    pthread_mutex_destroy(&later->lock);
    scratch_fini(&later->scratch);
    free(later);
}

struct later *later_start(const sluice_host *host, const struct options *options) {
    struct later *later = calloc(1, sizeof(*later));
    if (!later) {
        return NULL;
    }
    later->host = host;
    later->options = options;
    later->end = &later->first;
    pthread_mutex_init(&later->lock, NULL);
    pthread_cond_init(&later->changed, NULL);
    if (pthread_create(&later->thread, NULL, run, later) != 0) {
        later_free(later);
        return NULL;
    }
    return later;
}

static void refuse_all(struct later *later, const sluice_request *const *requests, size_t n) {
    sluice_response response = {.size = sizeof(response),
                                .status = SLUICE_NO_MEMORY,
                                .error = "no memory to keep the batch",
                                .final = 1};
    for (size_t i = 0; i < n; i++) {
        later->host->respond(requests[i], &response);
    }
}

void later_take(struct later *later, const sluice_request *const *requests, size_t n) {
    struct batch *batch = malloc(sizeof(*batch) + n * sizeof(requests[0]));
    if (!batch) {
        refuse_all(later, requests, n);
        return;
    }
    batch->next = NULL;
    batch->n = n;
    memcpy(batch->requests, requests, n * sizeof(requests[0]));
    pthread_mutex_lock(&later->lock);
    *later->end = batch;
    later->end = &batch->next;
    pthread_cond_signal(&later->changed);
    pthread_mutex_unlock(&later->lock);
}

void later_stop(struct later *later) {
    if (!later) {
        return;
    }
    pthread_mutex_lock(&later->lock);
    later->stopping = 1;
    pthread_cond_signal(&later->changed);
    pthread_mutex_unlock(&later->lock);
    pthread_join(later->thread, NULL);
    later_free(later);
}
