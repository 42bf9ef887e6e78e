/* Outlier detection: an endpoint whose responses are errors is ejected for a time. Modelled on
 * Envoy's (envoy.config.cluster.v3.OutlierDetection), of which the settings have their names.
 *
 * Three rules eject: errors in a row, gateway failures in a row, and the share of errors in an
 * interval. An ejection lasts base_ejection_time times the number of ejections in a row, and at
 * most max_ejection_time. Afterwards the endpoint is on trial: its first response decides whether
 * it is ejected again, for longer. Ejected endpoints are picked only where no other is left, so a
 * pool whose servers all fail works as without ejections, and max_ejection_percent bounds the load
 * that the others have to take over. */
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/pool/state.h"

static uint32_t load_u32(const _Atomic uint32_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

static void store_u32(_Atomic uint32_t *cell, uint32_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

void endpoint_end_ejection(struct endpoint *endpoint, bool expired) {
    endpoint->outliers.readmitted_ns = clock_now_ns();
    atomic_store_explicit(&endpoint->outliers.on_trial, expired, memory_order_relaxed);
}

static void begin_window(struct endpoint_outliers *outliers, uint64_t now_ns) {
    outliers->window_start_ns = now_ns;
    outliers->n_failures = 0;
    store_u32(&outliers->n_responses, 0);
}

void endpoint_forget_outliers(struct endpoint *endpoint) {
    struct endpoint_outliers *outliers = &endpoint->outliers;
    store_u32(&outliers->n_consecutive_5xx, 0);
    store_u32(&outliers->n_consecutive_gateway_failures, 0);
    atomic_store_explicit(&outliers->on_trial, false, memory_order_relaxed);
    outliers->n_ejections = 0;
    outliers->readmitted_ns = 0;
    begin_window(outliers, 0);
}

/* ---- ejecting: all under the pool's lock ----------------------------------------------------- */

/* For the log, which is written without the lock. */
struct ejection {
    const char *reason; /* NULL: not ejected */
    uint64_t duration_ns;
    uint32_t n_ejections;
};

static void count_failure(const struct pool_outlier_detection *config,
                          struct endpoint_outliers *outliers, bool is_gateway_failure,
                          uint64_t now_ns) {
    if (clock_between_ns(outliers->window_start_ns, now_ns) >= config->interval_ns) {
        begin_window(outliers, now_ns);
    }
    outliers->n_failures++;
    store_u32(&outliers->n_responses, load_u32(&outliers->n_responses) + 1);
    store_u32(&outliers->n_consecutive_5xx, load_u32(&outliers->n_consecutive_5xx) + 1);
    store_u32(&outliers->n_consecutive_gateway_failures,
              is_gateway_failure ? load_u32(&outliers->n_consecutive_gateway_failures) + 1 : 0);
}

static bool is_reached(uint64_t n, uint64_t limit) {
    return limit > 0 && n >= limit;
}

/* Returns: NULL: no rule ejects the endpoint. */
static const char *find_reason(const struct pool_outlier_detection *config,
                               const struct endpoint_outliers *outliers) {
    uint64_t n = load_u32(&outliers->n_responses);
    if (atomic_load_explicit(&outliers->on_trial, memory_order_relaxed)) {
        return "an error after the last ejection";
    }
    if (is_reached(load_u32(&outliers->n_consecutive_gateway_failures),
                   config->consecutive_gateway_failure)) {
        return "consecutive_gateway_failure";
    }
    if (is_reached(load_u32(&outliers->n_consecutive_5xx), config->consecutive_5xx)) {
        return "consecutive_5xx";
    }
    return n >= config->failure_percentage_request_volume &&
                   is_reached(UINT64_C(100) * outliers->n_failures,
                              config->failure_percentage_threshold * n)
               ? "failure_percentage_threshold"
               : NULL;
}

static bool may_eject_another(const struct pool *pool) {
    uint64_t n = pool->snapshot->n_members;
    uint64_t most = n * pool->snapshot->spec->outlier_detection.max_ejection_percent / 100;
    most = most > 1 ? most : 1;
    return pool->n_ejected < most && pool->n_ejected + 1 < n;
}

/* Envoy: each interval without an ejection makes the next ones shorter. */
static uint64_t next_duration_ns(const struct pool_outlier_detection *config,
                                 struct endpoint_outliers *outliers, uint64_t now_ns) {
    uint64_t n_good = clock_between_ns(outliers->readmitted_ns, now_ns) / config->interval_ns;
    uint64_t most_ns = config->max_ejection_time_ns > config->base_ejection_time_ns
                           ? config->max_ejection_time_ns
                           : config->base_ejection_time_ns;
    outliers->n_ejections -=
        n_good < outliers->n_ejections ? (uint32_t)n_good : outliers->n_ejections;
    outliers->n_ejections++;
    return outliers->n_ejections < most_ns / config->base_ejection_time_ns
               ? config->base_ejection_time_ns * outliers->n_ejections
               : most_ns;
}

static void eject(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns,
                  struct ejection *out) {
    struct endpoint_outliers *outliers = &endpoint->outliers;
    out->duration_ns = next_duration_ns(&pool->snapshot->spec->outlier_detection, outliers, now_ns);
    out->n_ejections = outliers->n_ejections;
    endpoint_set_avoided(pool, endpoint, ENDPOINT_EJECTED, now_ns + out->duration_ns);
    begin_window(outliers, now_ns);
    store_u32(&outliers->n_consecutive_5xx, 0);
    store_u32(&outliers->n_consecutive_gateway_failures, 0);
    atomic_store_explicit(&outliers->on_trial, false, memory_order_relaxed);
}

/* Responses to requests that were sent before an ejection do not prolong it. */
static void record_failure(struct pool *pool, struct endpoint *endpoint, bool is_gateway_failure,
                           struct ejection *out) {
    const struct pool_outlier_detection *config = &pool->snapshot->spec->outlier_detection;
    uint64_t now_ns = clock_now_ns();
    if (config->max_ejection_percent == 0 || !endpoint_is_ready(endpoint) ||
        endpoint->avoidance == ENDPOINT_EJECTED) {
        return;
    }
    count_failure(config, &endpoint->outliers, is_gateway_failure, now_ns);
    const char *reason = find_reason(config, &endpoint->outliers);
    if (reason && may_eject_another(pool)) {
        out->reason = reason;
        eject(pool, endpoint, now_ns, out);
    }
}

/* ---- reports --------------------------------------------------------------------------------- */

/* The usual case takes no lock. */
static void record_success(const struct pool *pool, struct endpoint *endpoint) {
    struct endpoint_outliers *outliers = &endpoint->outliers;
    store_u32(&outliers->n_responses, load_u32(&outliers->n_responses) + 1);
    if (load_u32(&outliers->n_consecutive_5xx) > 0) {
        store_u32(&outliers->n_consecutive_5xx, 0);
        store_u32(&outliers->n_consecutive_gateway_failures, 0);
    }
    if (atomic_load_explicit(&outliers->on_trial, memory_order_relaxed) &&
        atomic_exchange_explicit(&outliers->on_trial, false, memory_order_relaxed)) {
        log_event(LOG_INFO, "endpoint recovered after an ejection",
                  LOG_STR("endpoint", endpoint_text(endpoint)), LOG_STR("pool", pool->name));
    }
}

void pool_report_outcome(struct pool *pool, struct endpoint *endpoint, enum pool_outcome outcome) {
    struct ejection ejection = {.reason = NULL};
    if (outcome == POOL_OUTCOME_OK) {
        record_success(pool, endpoint);
        return;
    }
    lock_acquire(&pool->lock);
    record_failure(pool, endpoint, outcome == POOL_OUTCOME_GATEWAY_FAILURE, &ejection);
    lock_release(&pool->lock);
    if (ejection.reason) {
        metric_add(METRIC_PICK_EJECTIONS_TOTAL, 1);
        log_event(LOG_WARNING, "endpoint ejected", LOG_STR("endpoint", endpoint_text(endpoint)),
                  LOG_STR("pool", pool->name), LOG_CSTR("reason", ejection.reason),
                  LOG_U64("seconds", ejection.duration_ns / 1000000000),
                  LOG_U64("ejections", ejection.n_ejections));
    }
}
