/* A few idle requests are kept: their memory has the size of what they ran last, and making one
 * costs more than a small model's run. */
#include "openvino/lane.h"

#include <stdlib.h>

#include "openvino/ov.h"

enum { KEEP = 4, KEEP_BYTES = 4 << 20 };

static void lane_free(struct lane *lane) {
    ov_infer_request_free(lane->request);
    free(lane);
}

struct lanes *lanes_new(ov_compiled_model_t *compiled) {
    struct lanes *lanes = calloc(1, sizeof(*lanes));
    if (!lanes || pthread_mutex_init(&lanes->lock, NULL) != 0) {
        ov_compiled_model_free(compiled);
        free(lanes);
        return NULL;
    }
    lanes->compiled = compiled;
    lanes->n_refs = 1;
    return lanes;
}

/* Returns: what is idle, when nobody is left to use it. */
static struct lane *unref(struct lanes *lanes, int *last) {
    *last = --lanes->n_refs == 0;
    return *last ? lanes->idle : NULL;
}

static void lanes_free(struct lanes *lanes, struct lane *idle) {
    for (struct lane *next; idle; idle = next) {
        next = idle->next;
        lane_free(idle);
    }
    ov_compiled_model_free(lanes->compiled);
    pthread_mutex_destroy(&lanes->lock);
    free(lanes);
}

void lanes_close(struct lanes *lanes) {
    int last = 0;
    pthread_mutex_lock(&lanes->lock);
    struct lane *idle = unref(lanes, &last);
    pthread_mutex_unlock(&lanes->lock);
    if (last) {
        lanes_free(lanes, idle);
    }
}

static sluice_status lane_new(struct lanes *lanes, struct lane **lane, sluice_error *error) {
    struct lane *made = calloc(1, sizeof(*made));
    if (!made) {
        return error_set(error, SLUICE_NO_MEMORY, "no memory for a run");
    }
    sluice_status status =
        ov_check(ov_compiled_model_create_infer_request(lanes->compiled, &made->request),
                 "a run could not be prepared", error);
    if (status != SLUICE_OK) {
        free(made);
        return status;
    }
    made->lanes = lanes;
    *lane = made;
    return SLUICE_OK;
}

sluice_status lane_take(struct lanes *lanes, struct lane **lane, sluice_error *error) {
    pthread_mutex_lock(&lanes->lock);
    *lane = lanes->idle;
    if (*lane) {
        lanes->idle = (*lane)->next;
        lanes->n_idle--;
    }
    lanes->n_refs++;
    pthread_mutex_unlock(&lanes->lock);
    if (*lane) {
        return SLUICE_OK;
    }
    sluice_status status = lane_new(lanes, lane, error);
    if (status != SLUICE_OK) {
        lanes_close(lanes); /* the reference that was for it */
    }
    return status;
}

void lane_give(struct lane *lane, size_t n_bytes) {
    struct lanes *lanes = lane->lanes;
    int last = 0, kept = 0;
    pthread_mutex_lock(&lanes->lock);
    if (n_bytes <= KEEP_BYTES && lanes->n_idle < KEEP) {
        lane->next = lanes->idle;
        lanes->idle = lane;
        lanes->n_idle++;
        kept = 1;
    }
    struct lane *idle = unref(lanes, &last);
    pthread_mutex_unlock(&lanes->lock);
    if (!kept) {
        lane_free(lane);
    }
    if (last) {
        lanes_free(lanes, idle);
    }
}
