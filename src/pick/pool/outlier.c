/* Outlier detection: an endpoint whose responses are failures, and the others' are not, is ejected.
 * Modelled on Envoy's (envoy.config.cluster.v3.OutlierDetection), of which the settings have their
 * names; but a failure counts only where it stands out (docs/decisions/045).
 *
 * A failure stands out where most of the last requests at other endpoints, of the same client and
 * of the same kind if there are any, did not fail likewise (pick/pool/records.h, kinds.h). So
 * neither a failure of all endpoints nor a client whose own requests fail ejects an endpoint, and a
 * request for a model that none has says nothing of an endpoint.
 *
 * Three rules eject by the failures that count: failures in a row, gateway failures in a row, and
 * the share of failures in an interval. An ejection lasts base_ejection_time times the number of
 * ejections in a row, and at most max_ejection_time; trials end it earlier (pick/pool/window.c),
 * and so does a health check. A server whose check succeeds while it fails requests would be back
 * after each check: where the first request after such a check fails, the next ejection takes twice
 * as many of them.
 * max_ejection_percent bounds the load that the others have to take over.
 *
 * An endpoint of which requests of one kind fail in a row, with answers to others in between, is
 * avoided for that kind alone, by the same rule and bounds. */
#include <stdlib.h>

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

/* ---- kinds of requests: under the pool's lock ------------------------------------------------ */

static uint32_t n_avoided_kinds(const struct pool *pool) {
    return load_u32(&pool->n_avoided_kinds);
}

/* For picks, which read it without the lock. */
static void note_avoided_kinds(struct pool *pool) {
    store_u32(&pool->n_avoided_kinds, pool->outcomes->kinds.n_avoided);
}

size_t pool_list_unfit(struct pool *pool, uint64_t kind,
                       const struct endpoint *out[ENDPOINTS_OF_KIND]) {
    size_t n = 0;
    if (kind != 0 && n_avoided_kinds(pool) > 0) {
        lock_acquire(&pool->lock);
        n = request_kinds_list_avoided(&pool->outcomes->kinds, kind, clock_now_ns(), out);
        lock_release(&pool->lock);
    }
    return n;
}

void pool_count_kind(struct pool *pool, uint64_t kind, const struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (kind != 0 && n_avoided_kinds(pool) > 0) {
        request_kinds_count_pick(&pool->outcomes->kinds, kind, endpoint, clock_now_ns());
    }
}

void endpoint_end_ejection(struct endpoint *endpoint, bool on_trial) {
    endpoint->outliers.readmitted_ns = clock_now_ns();
    atomic_store_explicit(&endpoint->outliers.on_trial, on_trial, memory_order_relaxed);
}

void endpoint_count_check(struct endpoint *endpoint, uint64_t begun_ns) {
    if (begun_ns >= endpoint->outliers.ejected_ns) {
        endpoint->outliers.n_checks++;
    }
}

static bool has_enough_checks(const struct endpoint_outliers *outliers) {
    return outliers->n_checks >= UINT32_C(1) << outliers->n_failed_proofs;
}

bool endpoint_is_proved(const struct endpoint *endpoint) {
    return endpoint_avoidance(endpoint) == ENDPOINT_EJECTED &&
           has_enough_checks(&endpoint->outliers);
}

void endpoint_forget_trials(struct endpoint *endpoint) {
    atomic_store_explicit(&endpoint->outliers.on_trial, false, memory_order_relaxed);
    endpoint->outliers.n_checks = 0;
    endpoint->outliers.n_failed_proofs = 0;
}

static void begin_window(struct endpoint_outliers *outliers, uint64_t now_ns) {
    outliers->window_start_ns = now_ns;
    outliers->n_failures = 0;
    store_u32(&outliers->n_responses, 0);
}

void endpoint_forget_outliers(struct pool *pool, struct endpoint *endpoint) {
    struct endpoint_outliers *outliers = &endpoint->outliers;
    store_u32(&outliers->n_consecutive_5xx, 0);
    store_u32(&outliers->n_consecutive_gateway_failures, 0);
    endpoint_forget_trials(endpoint);
    outliers->n_ejections = 0;
    outliers->ejected_ns = 0;
    outliers->readmitted_ns = 0;
    begin_window(outliers, 0);
    if (pool->outcomes && pool_wants_clients(pool)) { /* otherwise all records are too old */
        outcome_table_forget(&pool->outcomes->all, endpoint);
        request_kinds_forget(&pool->outcomes->kinds, endpoint);
        note_avoided_kinds(pool);
    }
}

void endpoint_readmit_kinds(struct pool *pool, const struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (n_avoided_kinds(pool) > 0) {
        request_kinds_readmit(&pool->outcomes->kinds, endpoint);
        note_avoided_kinds(pool);
    }
}

/* ---- ejecting: all under the pool's lock ----------------------------------------------------- */

/* For the log, which is written without the lock. */
struct ejection {
    const char *reason; /* NULL: not ejected */
    bool of_kind;       /* avoided for one kind of requests */
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

/* So many failures in a row are no chance: where a share of the others' requests fails as well,
 * more of them are needed. */
static bool is_improbable(struct outcome_share others, uint64_t n_in_row) {
    static const double most = 1e-5;
    double chance = others.n_bad > 0 ? 1 : 0;
    for (uint64_t i = 0; i < n_in_row && chance > most; i++) {
        chance *= (double)others.n_bad / others.n;
    }
    return chance <= most;
}

/* Returns: NULL: no rule ejects the endpoint. */
static const char *find_reason(const struct pool_outlier_detection *config,
                               const struct endpoint_outliers *outliers,
                               struct outcome_share others) {
    uint64_t n = load_u32(&outliers->n_responses);
    uint64_t n_gateway = load_u32(&outliers->n_consecutive_gateway_failures);
    uint64_t n_5xx = load_u32(&outliers->n_consecutive_5xx);
    if (atomic_load_explicit(&outliers->on_trial, memory_order_relaxed)) {
        return "an error after the last ejection";
    }
    if (is_reached(n_gateway, config->consecutive_gateway_failure) &&
        is_improbable(others, n_gateway)) {
        return "consecutive_gateway_failure";
    }
    if (is_reached(n_5xx, config->consecutive_5xx) && is_improbable(others, n_5xx)) {
        return "consecutive_5xx";
    }
    return n >= config->failure_percentage_request_volume &&
                   is_reached(UINT64_C(100) * outliers->n_failures,
                              config->failure_percentage_threshold * n)
               ? "failure_percentage_threshold"
               : NULL;
}

/* `n_avoided`: those for the kind of requests. */
static bool may_avoid_another(const struct pool *pool, uint32_t n_avoided) {
    uint64_t n = pool->snapshot->n_members;
    uint64_t most = n * pool->snapshot->spec->outlier_detection.max_ejection_percent / 100;
    most = most > 1 ? most : 1;
    uint64_t n_ejected = (uint64_t)n_avoided + pool->n_avoided[ENDPOINT_EJECTED];
    return n_ejected < most && n_ejected + 1 < n;
}

/* Envoy: each interval without an ejection makes the next ones shorter. A trial that fails before
 * the ejection's time has passed does not make them longer. */
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

/* Twice as many each time, up to 2^10. */
static void begin_proof(struct endpoint_outliers *outliers, bool failed, uint64_t now_ns) {
    outliers->n_failed_proofs += failed && outliers->n_failed_proofs < 10;
    outliers->n_checks = 0;
    outliers->ejected_ns = now_ns;
}

/* A trial that failed is no new ejection for the log. */
static void eject(struct pool *pool, struct endpoint *endpoint, const char *reason, uint64_t now_ns,
                  struct ejection *out) {
    struct endpoint_outliers *outliers = &endpoint->outliers;
    bool again = atomic_load_explicit(&outliers->on_trial, memory_order_relaxed);
    uint64_t until_ns = endpoint->avoided_until_ns; /* of the ejection before the trial */
    if (!again || until_ns <= now_ns) {
        out->duration_ns =
            next_duration_ns(&pool->snapshot->spec->outlier_detection, outliers, now_ns);
        until_ns = now_ns + out->duration_ns;
        out->reason = reason;
    }
    out->n_ejections = outliers->n_ejections;
    begin_proof(outliers, again && has_enough_checks(outliers), now_ns);
    endpoint_set_avoided(pool, endpoint, ENDPOINT_EJECTED, now_ns, until_ns);
    begin_window(outliers, now_ns);
    store_u32(&outliers->n_consecutive_5xx, 0);
    store_u32(&outliers->n_consecutive_gateway_failures, 0);
    atomic_store_explicit(&outliers->on_trial, false, memory_order_relaxed);
}

/* Responses to requests that were sent before an ejection do not prolong it. */
static void count_outlier(struct pool *pool, struct endpoint *endpoint, struct outcome_share others,
                          bool is_gateway_failure, uint64_t now_ns, struct ejection *out) {
    const struct pool_outlier_detection *config = &pool->snapshot->spec->outlier_detection;
    if (config->max_ejection_percent == 0 || endpoint_avoidance(endpoint) == ENDPOINT_EJECTED) {
        return;
    }
    count_failure(config, &endpoint->outliers, is_gateway_failure, now_ns);
    const char *reason = find_reason(config, &endpoint->outliers, others);
    if (reason && may_avoid_another(pool, 0)) {
        eject(pool, endpoint, reason, now_ns, out);
        endpoint_readmit_kinds(pool, endpoint); /* any kind may be the trial */
    }
}

/* `n_in_row`: failures of the kind at the endpoint. */
static void judge_kind(struct pool *pool, const struct endpoint *endpoint, uint64_t kind,
                       uint32_t n_in_row, struct outcome_share others, uint64_t now_ns,
                       struct ejection *out) {
    const struct pool_outlier_detection *config = &pool->snapshot->spec->outlier_detection;
    struct request_kinds *kinds = &pool->outcomes->kinds;
    if (config->max_ejection_percent > 0 && endpoint_avoidance(endpoint) == ENDPOINT_NOT_AVOIDED &&
        others.n > 0 && is_reached(n_in_row, config->consecutive_5xx) &&
        is_improbable(others, n_in_row) &&
        may_avoid_another(pool, request_kinds_count_avoided(kinds, kind))) {
        out->of_kind = request_kinds_avoid(kinds, kind, endpoint, now_ns);
        note_avoided_kinds(pool);
    }
}

/* ---- what other endpoints answer: under the pool's lock -------------------------------------- */

/* For how long after a failure good answers are recorded, too, and how old a record may be. */
static const uint64_t TROUBLE_NS = 10000000000;

static void begin_trouble(struct pool *pool, uint64_t now_ns) {
    if (!pool->outcomes) {
        pool->outcomes = calloc(1, sizeof(*pool->outcomes)); /* without memory nothing stands out */
    }
    pool->troubled_ns = now_ns;
    atomic_store_explicit(&pool->is_troubled, true, memory_order_relaxed);
}

static void end_trouble(struct pool *pool, uint64_t now_ns) {
    bool over = clock_between_ns(pool->troubled_ns, now_ns) > TROUBLE_NS && pool->n_windows == 0 &&
                TAILQ_EMPTY(&pool->avoided) && TAILQ_EMPTY(&pool->indebted);
    if (over && n_avoided_kinds(pool) > 0) {
        request_kinds_expire(&pool->outcomes->kinds, now_ns, TROUBLE_NS);
        note_avoided_kinds(pool);
    }
    if (over && n_avoided_kinds(pool) == 0) {
        atomic_store_explicit(&pool->is_troubled, false, memory_order_relaxed);
    }
}

static enum outcome_kind kind_of(enum pool_outcome outcome) {
    return outcome == POOL_OUTCOME_OK         ? OUTCOME_KIND_ANSWERED
           : outcome == POOL_OUTCOME_REJECTED ? OUTCOME_KIND_REJECTED
                                              : OUTCOME_KIND_FAILED;
}

/* Where nothing is known of others, a rejection may be the client's fault; a failure is the
 * server's. */
static bool stands_out(struct outcome_share others, enum pool_outcome outcome) {
    return others.n == 0 ? outcome != POOL_OUTCOME_REJECTED : 2 * others.n_bad <= others.n;
}

/* What is known of a result. */
struct verdict {
    struct outcome_share others;  /* at how many of the others requests end likewise */
    struct outcome_share of_kind; /* those of the kind alone */
    bool stands_out;
    uint32_t n_in_row; /* failures of the kind that stand out */
};

static struct outcome_share worse_of(struct outcome_share a, struct outcome_share b) {
    bool is_worse = (uint64_t)a.n_bad * b.n >= (uint64_t)b.n_bad * a.n;
    return b.n == 0 || (a.n > 0 && is_worse) ? a : b;
}

/* Records the result, and compares it: with requests of the client, and with those of the kind,
 * whichever fail more, and where there are none of either with all. For a rejection the kind must
 * be known: other requests do not tell whether the model exists. */
static struct verdict record_outcome(struct pool *pool, const struct endpoint *endpoint,
                                     const struct pool_result *result, uint64_t now_ns) {
    enum outcome_kind outcome = kind_of(result->outcome);
    struct verdict verdict = {.stands_out =
                                  stands_out((struct outcome_share){0, 0}, result->outcome)};
    if (!pool->outcomes || !endpoint->in_pool) {
        return verdict;
    }
    struct outcome_table *all = &pool->outcomes->all;
    struct request_kinds *kinds = &pool->outcomes->kinds;
    struct outcome_share of_client =
        outcome_table_of_client(all, endpoint, result->client, outcome, now_ns, TROUBLE_NS);
    verdict.of_kind =
        request_kinds_elsewhere(kinds, result->kind, endpoint, outcome, now_ns, TROUBLE_NS);
    verdict.others = worse_of(of_client, verdict.of_kind);
    if (verdict.others.n == 0 && (result->kind == 0 || outcome != OUTCOME_KIND_REJECTED)) {
        verdict.others = outcome_records_elsewhere(all->pool, OUTCOMES_OF_POOL, endpoint, outcome,
                                                   now_ns, TROUBLE_NS);
    }
    verdict.stands_out = stands_out(verdict.others, result->outcome);
    outcome_table_add(all, endpoint, result->client, outcome, now_ns);
    verdict.n_in_row = request_kinds_add(kinds, result->kind, endpoint, outcome, verdict.stands_out,
                                         now_ns, TROUBLE_NS);
    note_avoided_kinds(pool);
    return verdict;
}

/* At most of the other endpoints, that is, and at none of them requests end better: where two of
 * three fail, the one that serves answers later than they do. */
static bool is_seen_everywhere(const struct pool *pool, struct outcome_share others) {
    uint32_t n = pool->snapshot->n_members - 1;
    n = n < OUTCOMES_OF_CLIENT ? n : OUTCOMES_OF_CLIENT;
    return 2 * others.n > n && others.n_bad == others.n;
}

/* The request was sent before the endpoint was avoided, or before its last trial began: that it
 * failed then is known. An endpoint that hung may have such requests for long. */
static bool is_known(const struct endpoint *endpoint, const struct pool_result *result) {
    return result->number > 0 && result->number <= endpoint->n_picks_before;
}

static void record_failure(struct pool *pool, struct endpoint *endpoint,
                           const struct pool_result *result, struct ejection *out) {
    uint64_t now_ns = clock_now_ns();
    begin_trouble(pool, now_ns);
    if (is_known(endpoint, result)) {
        return;
    }
    struct verdict verdict = record_outcome(pool, endpoint, result, now_ns);
    struct outcome_share others = verdict.others;
    if (!endpoint_is_ready(endpoint)) {
        return;
    }
    /* Failures that are seen everywhere, and those of a full endpoint, come in rows by chance. */
    endpoint_add_debt(pool, endpoint,
                      is_seen_everywhere(pool, others) || result->outcome == POOL_OUTCOME_SHED);
    if (!verdict.stands_out) {
        return;
    }
    if (result->outcome == POOL_OUTCOME_SHED) {
        /* The only request there was shed: where nothing is known of others, it may be the client's
         * quota. */
        if (others.n == 0 && endpoint_in_flight(endpoint) <= 1) {
            return;
        }
        endpoint_shrink_window(pool, endpoint, now_ns, result->retry_after_ns);
    } else {
        count_outlier(pool, endpoint, others, result->outcome == POOL_OUTCOME_GATEWAY_FAILURE,
                      now_ns, out);
        judge_kind(pool, endpoint, result->kind, verdict.n_in_row, verdict.of_kind, now_ns, out);
    }
}

/* An answer is a proof that the endpoint serves. */
static void record_answer(struct pool *pool, struct endpoint *endpoint,
                          const struct pool_result *result,
                          struct pool_notifications *notifications) {
    uint64_t now_ns = clock_now_ns();
    (void)record_outcome(pool, endpoint, result, now_ns);
    endpoint_end_row(pool, endpoint);
    endpoint_try_avoided(pool, endpoint);
    if (endpoint_window_size(endpoint) > 0) {
        endpoint_grow_window(pool, endpoint);
        pool_notify_waiters(pool, endpoint, notifications);
    }
    pool_pay_debts(pool);
    end_trouble(pool, now_ns);
}

/* ---- what a status says ---------------------------------------------------------------------- */

/* 501 is the client's error, as UNIMPLEMENTED below. */
enum pool_outcome pool_outcome_of_http(struct str status) {
    if (str_is(status, "429") || str_is(status, "503")) {
        return POOL_OUTCOME_SHED;
    }
    if (str_is(status, "401") || str_is(status, "403") || str_is(status, "404")) {
        return POOL_OUTCOME_REJECTED;
    }
    if (status.len != 3 || status.ptr[0] != '5' || str_is(status, "501")) {
        return POOL_OUTCOME_OK;
    }
    return str_is(status, "502") || str_is(status, "504") ? POOL_OUTCOME_GATEWAY_FAILURE
                                                          : POOL_OUTCOME_5XX;
}

/* The status of a gRPC call, by the HTTP status that Envoy counts for it: UNKNOWN, INTERNAL and
 * DATA_LOSS are 500, DEADLINE_EXCEEDED 504, UNAVAILABLE 503, RESOURCE_EXHAUSTED 429, NOT_FOUND 404,
 * PERMISSION_DENIED 403, UNAUTHENTICATED 401. */
enum pool_outcome pool_outcome_of_grpc(struct str status) {
    static const struct {
        const char *status;
        enum pool_outcome outcome;
    } rows[] = {
        {"2", POOL_OUTCOME_5XX},       {"13", POOL_OUTCOME_5XX},
        {"15", POOL_OUTCOME_5XX},      {"4", POOL_OUTCOME_GATEWAY_FAILURE},
        {"14", POOL_OUTCOME_SHED},     {"8", POOL_OUTCOME_SHED},
        {"5", POOL_OUTCOME_REJECTED},  {"7", POOL_OUTCOME_REJECTED},
        {"16", POOL_OUTCOME_REJECTED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (str_is(status, rows[i].status)) {
            return rows[i].outcome;
        }
    }
    return POOL_OUTCOME_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

bool pool_wants_clients(const struct pool *pool) {
    return atomic_load_explicit(&pool->is_troubled, memory_order_relaxed);
}

/* The usual case takes no lock. */
static void report_answer(struct pool *pool, struct endpoint *endpoint,
                          const struct pool_result *result) {
    struct endpoint_outliers *outliers = &endpoint->outliers;
    store_u32(&outliers->n_responses, load_u32(&outliers->n_responses) + 1);
    if (load_u32(&outliers->n_consecutive_5xx) > 0) {
        store_u32(&outliers->n_consecutive_5xx, 0);
        store_u32(&outliers->n_consecutive_gateway_failures, 0);
    }
    if (!pool_wants_clients(pool)) {
        return;
    }
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    record_answer(pool, endpoint, result, &notifications);
    bool recovered = atomic_exchange_explicit(&outliers->on_trial, false, memory_order_relaxed);
    if (recovered) {
        outliers->n_failed_proofs = 0;
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
    if (recovered) {
        log_event(LOG_INFO, "endpoint recovered after an ejection",
                  LOG_STR("endpoint", endpoint_text(endpoint)), LOG_STR("pool", pool->name));
    }
}

void pool_report_result(struct pool *pool, struct endpoint *endpoint,
                        const struct pool_result *result) {
    struct ejection ejection = {.reason = NULL};
    if (!pool_has_results(pool)) {
        atomic_store_explicit(&pool->has_results, true, memory_order_relaxed);
    }
    if (result->outcome == POOL_OUTCOME_OK) {
        report_answer(pool, endpoint, result);
        return;
    }
    lock_acquire(&pool->lock);
    record_failure(pool, endpoint, result, &ejection);
    lock_release(&pool->lock);
    if (ejection.of_kind) {
        metric_add(METRIC_PICK_KINDS_AVOIDED_TOTAL, 1);
        log_event(LOG_WARNING, "endpoint avoided for one model or path",
                  LOG_STR("endpoint", endpoint_text(endpoint)), LOG_STR("pool", pool->name),
                  LOG_CSTR("reason", "consecutive_5xx"));
    }
    if (ejection.reason) {
        metric_add(METRIC_PICK_EJECTIONS_TOTAL, 1);
        log_event(LOG_WARNING, "endpoint ejected", LOG_STR("endpoint", endpoint_text(endpoint)),
                  LOG_STR("pool", pool->name), LOG_CSTR("reason", ejection.reason),
                  LOG_U64("seconds", ejection.duration_ns / 1000000000),
                  LOG_U64("ejections", ejection.n_ejections));
    }
}
