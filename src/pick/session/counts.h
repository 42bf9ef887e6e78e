/* What sessions count, in the process's registry (core/base/metric/metric.def): one function for
 * each thing that can happen. */
#ifndef SLUICE_PICK_SESSION_COUNTS_H
#define SLUICE_PICK_SESSION_COUNTS_H

#include <stdbool.h>

#include "core/base/metric/metric.h"
#include "pick/pool/pool.h"

/* Where a model was found. */
enum pick_found { PICK_FOUND_NONE, PICK_FOUND_PATH, PICK_FOUND_HEADER, PICK_FOUND_BODY };

static inline void pick_count_begin(void) {
    metric_add(METRIC_PICK_STREAMS, 1);
    metric_add(METRIC_PICK_STREAMS_TOTAL, 1);
}
static inline void pick_count_end(bool owed) {
    metric_add(METRIC_PICK_STREAMS, -1);
    if (owed) {
        metric_add(METRIC_PICK_UNANSWERED_TOTAL, 1);
    }
}
static inline void pick_count_pick(bool at_body, enum pool_way way) {
    static const enum metric rows[] = {[POOL_BY_FEWEST] = METRIC_PICK_BY_FEWEST,
                                       [POOL_BY_PROFILE] = METRIC_PICK_BY_PROFILE,
                                       [POOL_BY_LAST_CHOICE] = METRIC_PICK_BY_LAST_CHOICE};
    metric_add(at_body ? METRIC_PICK_AT_BODY : METRIC_PICK_AT_HEADERS, 1);
    metric_add(rows[way], 1);
}
static inline void pick_count_model(enum pick_found found) {
    static const enum metric rows[] = {[PICK_FOUND_NONE] = METRIC_PICK_MODEL_NONE,
                                       [PICK_FOUND_PATH] = METRIC_PICK_MODEL_IN_PATH,
                                       [PICK_FOUND_HEADER] = METRIC_PICK_MODEL_IN_HEADER,
                                       [PICK_FOUND_BODY] = METRIC_PICK_MODEL_IN_BODY};
    metric_add(rows[found], 1);
}
static inline void pick_count_refusal(enum status status) {
    metric_add_error(METRIC_PICK, status);
}

#endif
