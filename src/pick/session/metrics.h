/* The metrics of sessions, in the process's registry (core/base/metric/metric.def): one function
 * for each event. */
#ifndef SLUICE_PICK_SESSION_METRICS_H
#define SLUICE_PICK_SESSION_METRICS_H

#include <stdbool.h>

#include "core/base/metric/metric.h"
#include "pick/pool/pool.h"
#include "pick/session/stages.h"

/* Where a model was found. */
enum pick_model_source {
    PICK_MODEL_FROM_NONE,
    PICK_MODEL_FROM_PATH,
    PICK_MODEL_FROM_HEADER,
    PICK_MODEL_FROM_BODY
};

static inline void pick_count_stream_start(void) {
    metric_add(METRIC_PICK_STREAMS, 1);
    metric_add(METRIC_PICK_STREAMS_TOTAL, 1);
}
static inline void pick_count_stream_end(void) {
    metric_add(METRIC_PICK_STREAMS, -1);
}
static inline void pick_count_unanswered(void) {
    metric_add(METRIC_PICK_UNANSWERED_TOTAL, 1);
}
static inline void pick_count_pick(bool at_body, enum pool_picked_by picked_by) {
    static const enum metric rows[] = {[POOL_BY_LEAST_REQUESTS] = METRIC_PICK_BY_FEWEST,
                                       [POOL_BY_PROFILE] = METRIC_PICK_BY_PROFILE,
                                       [POOL_BY_LAST_RESORT] = METRIC_PICK_BY_LAST_CHOICE};
    metric_add(at_body ? METRIC_PICK_AT_BODY : METRIC_PICK_AT_HEADERS, 1);
    metric_add(rows[picked_by], 1);
}
static inline void pick_count_model(enum pick_model_source source) {
    static const enum metric rows[] = {[PICK_MODEL_FROM_NONE] = METRIC_PICK_MODEL_NONE,
                                       [PICK_MODEL_FROM_PATH] = METRIC_PICK_MODEL_IN_PATH,
                                       [PICK_MODEL_FROM_HEADER] = METRIC_PICK_MODEL_IN_HEADER,
                                       [PICK_MODEL_FROM_BODY] = METRIC_PICK_MODEL_IN_BODY};
    metric_add(rows[source], 1);
}
/* Of a stage that is not the destination. */
static inline void pick_count_stage(enum stage_role role, enum pick_stage_result result) {
    bool is_encode = role == STAGE_ENCODE;
    metric_add(result == PICK_STAGE_PICKED
                   ? (is_encode ? METRIC_PICK_ENCODE_PICKED : METRIC_PICK_PREFILL_PICKED)
               : result == PICK_STAGE_NO_ENDPOINT
                   ? (is_encode ? METRIC_PICK_ENCODE_MISSING : METRIC_PICK_PREFILL_MISSING)
                   : (is_encode ? METRIC_PICK_ENCODE_LEFT_OUT : METRIC_PICK_PREFILL_LEFT_OUT),
               1);
}
static inline void pick_count_refusal(enum status status) {
    metric_add_error(METRIC_PICK, status);
}

#endif
