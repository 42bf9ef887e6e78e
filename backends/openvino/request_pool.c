/* A few idle infer requests are kept: each has memory for its last run, and creating one costs more
 * than a small model's run. */
#include "openvino/request_pool.h"

#include <stdlib.h>

#include "openvino/ov.h"

enum { KEEP = 4, KEEP_BYTES = 4 << 20 };

static void pooled_request_free(struct pooled_request *pooled) {
    ov_infer_request_free(pooled->request);
    free(pooled);
}

struct request_pool *request_pool_new(ov_compiled_model_t *compiled) {
    struct request_pool *pool = calloc(1, sizeof(*pool));
    if (!pool || pthread_mutex_init(&pool->lock, NULL) != 0) {
        ov_compiled_model_free(compiled);
        free(pool);
        return NULL;
    }
    pool->compiled = compiled;
    pool->n_refs = 1;
    return pool;
}

/* Returns: the idle list, when the last reference was dropped. */
static struct pooled_request *pool_unref(struct request_pool *pool, int *last) {
    *last = --pool->n_refs == 0;
    return *last ? pool->idle : NULL;
}

static void request_pool_free(struct request_pool *pool, struct pooled_request *idle) {
    for (struct pooled_request *next; idle; idle = next) {
        next = idle->next;
        pooled_request_free(idle);
    }
    ov_compiled_model_free(pool->compiled);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void request_pool_unref(struct request_pool *pool) {
    int last = 0;
    pthread_mutex_lock(&pool->lock);
    struct pooled_request *idle = pool_unref(pool, &last);
    pthread_mutex_unlock(&pool->lock);
    if (last) {
        request_pool_free(pool, idle);
    }
}

static sluice_status pooled_request_new(struct request_pool *pool, struct pooled_request **pooled,
                                        sluice_error *error) {
    struct pooled_request *made = calloc(1, sizeof(*made));
    if (!made) {
        return error_no_memory(error, "a run");
    }
    sluice_status status =
        ov_check(ov_compiled_model_create_infer_request(pool->compiled, &made->request),
                 "a run could not be prepared", error);
    if (status != SLUICE_OK) {
        free(made);
        return status;
    }
    made->pool = pool;
    *pooled = made;
    return SLUICE_OK;
}

sluice_status request_pool_get(struct request_pool *pool, struct pooled_request **pooled,
                               sluice_error *error) {
    pthread_mutex_lock(&pool->lock);
    *pooled = pool->idle;
    if (*pooled) {
        pool->idle = (*pooled)->next;
        pool->n_idle--;
    }
    pool->n_refs++;
    pthread_mutex_unlock(&pool->lock);
    if (*pooled) {
        return SLUICE_OK;
    }
    sluice_status status = pooled_request_new(pool, pooled, error);
    if (status != SLUICE_OK) {
        request_pool_unref(pool); /* the reference that it held */
    }
    return status;
}

void request_pool_put(struct pooled_request *pooled, size_t n_bytes) {
    struct request_pool *pool = pooled->pool;
    int last = 0, kept = 0;
    pthread_mutex_lock(&pool->lock);
    if (n_bytes <= KEEP_BYTES && pool->n_idle < KEEP) {
        pooled->next = pool->idle;
        pool->idle = pooled;
        pool->n_idle++;
        kept = 1;
    }
    struct pooled_request *idle = pool_unref(pool, &last);
    pthread_mutex_unlock(&pool->lock);
    if (!kept) {
        pooled_request_free(pooled);
    }
    if (last) {
        request_pool_free(pool, idle);
    }
}
