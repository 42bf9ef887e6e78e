/* The configuration of a pool: the endpoints that are wanted and the settings for requests.
 * Discovery fills one in and passes it to pool_update; from then on it is immutable.
 *
 * All memory is in the spec's arena, for which the process ends when there is none (core/must):
 * texts that are added must be copied there (pool_spec_dup_text) or be literals.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_SPEC_H
#define SLUICE_PICK_POOL_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "pick/pool/endpoint/address.h"
#include "pick/pool/endpoint/protocol.h"
#include "pick/pool/flow/flow.h"
#include "pick/pool/flow/usage_limit.h"
#include "pick/pool/match.h"

struct pool_label {
    struct str key;
    struct str value;
};

struct pool_labels {
    const struct pool_label *items;
    size_t n;
};

/* What the endpoint is called where it comes from, for metrics. */
struct pool_endpoint_name {
    struct str pod;        /* len 0: none; the address is its name */
    struct str text;       /* of the endpoint: the pod's name with the number of its port */
    struct str name_space; /* of the pod */
    struct str host;       /* the pod's spec.hostname; len 0: none */
};

struct pool_spec_endpoint {
    struct endpoint_address address;
    struct endpoint_address node; /* of the host that the pod runs on; family 0: unknown */
    struct pool_labels labels;
    struct pool_endpoint_name name;
};

/* A name that a request's model is replaced by. */
struct pool_target {
    struct str model;
    uint32_t weight; /* its share is weight / sum of all weights; 0: never */
};

struct pool_targets {
    const struct pool_target *items;
    size_t n; /* 0: the name is not replaced */
};

/* InferenceModel's (v1alpha2). A model without one is Standard. */
enum pool_criticality { POOL_STANDARD, POOL_CRITICAL, POOL_SHEDDABLE };

struct pool_model {
    struct str name; /* as requests name it */
    enum pool_criticality criticality;
    struct pool_targets targets;
};

/* InferenceObjective: negative priorities are sheddable. */
struct pool_objective {
    struct str name;
    int64_t priority;
};

/* A rule of an InferenceModelRewrite. */
struct pool_rewrite {
    const struct str *models; /* as requests name them */
    size_t n_models;          /* 0: for every model without an entry */
    struct pool_targets targets;
};

enum pool_health_kind { POOL_HEALTH_NONE, POOL_HEALTH_HTTP, POOL_HEALTH_GRPC, POOL_HEALTH_TCP };

/* Readiness checks. */
struct pool_health {
    enum pool_health_kind kind; /* POOL_HEALTH_NONE: every endpoint is ready */
    struct str path;            /* HTTP: the path requested */
    struct str service;         /* gRPC: the service checked */
    uint16_t port;              /* 0: the endpoint's */
    uint64_t interval_ns;
    uint64_t timeout_ns;
    unsigned n_healthy;   /* consecutive successes until an endpoint is ready */
    unsigned n_unhealthy; /* consecutive failures until it is not ready */
};

/* A time that no request waits for; added to any time of the clock it is still one. */
#define POOL_WAIT_FOREVER ((uint64_t)INT64_MAX)

/* Requests are queued while the pool is saturated. */
struct pool_flow_control {
    bool on;
    bool sheddable_waits; /* requests of a priority below 0 wait as others; false: they are refused
                             while the pool is saturated */
    uint64_t max_wait_ns; /* POOL_WAIT_FOREVER: no limit */
    /* How long a request waits while no endpoint of the pool is ready: each time this begins or
     * ends the wait begins anew, with the other limit. 0: it is refused at once; one that waits for
     * capacity keeps its limit. */
    uint64_t no_endpoint_wait_ns;
    struct flow_limits limits;
    bool has_programs; /* a band has FLOW_BY_PROGRAM: what fairness ids are served is counted */
    struct program_rules programs; /* with has_programs */
    struct usage_limit usage;      /* what each priority may use of an endpoint's capacity */
    /* Running sheddable requests are ended for waiting ones (flow/evict.h); with a detector. */
    bool evicts;
    uint64_t evict_grace_ns; /* after which the saturation shows that one has ended */
};

/* Outlier detection: which errors eject an endpoint, and for how long. Named after Envoy's
 * (envoy.config.cluster.v3.OutlierDetection). */
struct pool_outlier_detection {
    uint64_t consecutive_5xx;                   /* responses with 5xx, or none; 0: not looked at */
    uint64_t consecutive_gateway_failure;       /* 502, 503, 504, or none; 0: not looked at */
    uint64_t failure_percentage_threshold;      /* of the responses in an interval; 0: not looked
                                                   at */
    uint64_t failure_percentage_request_volume; /* fewer responses in the interval do not count */
    uint64_t interval_ns;
    uint64_t base_ejection_time_ns; /* times the number of ejections in a row */
    uint64_t max_ejection_time_ns;
    uint64_t max_ejection_percent; /* of the pool's endpoints; 0: nothing is ejected. Otherwise at
                                      least one may be ejected, and at least one is not */
};

/* Priorities of criticalities, for requests without a known objective. */
enum { POOL_PRIORITY_STANDARD = 0, POOL_PRIORITY_CRITICAL = 10, POOL_PRIORITY_SHEDDABLE = -1 };

/* A setting that is accepted but has no effect, or less effect than its author may expect. */
struct pool_spec_note {
    struct str setting;
    const char *why;
};

/* Upstream's detectors, which measure the pool as a whole (flow/saturation.h). */
enum detector_kind {
    DETECTOR_NONE,     /* endpoints are full one by one */
    DETECTOR_REQUESTS, /* our requests in flight; the limit is max_in_flight of each endpoint */
    DETECTOR_TOKENS,   /* their tokens */
    DETECTOR_HYBRID,   /* of each endpoint that of the two which is nearer to its limit */
    DETECTOR_LOADS,    /* queue_depth and kv_cache, likewise, of load reports */
};

struct pool_detector {
    enum detector_kind kind;
    uint64_t max_tokens;     /* in flight at an endpoint; DETECTOR_TOKENS, DETECTOR_HYBRID */
    bool stale_is_saturated; /* DETECTOR_LOADS: an endpoint without a recent report is at its
                                limits; false: it is left out */
};
enum { SATURATION_PREFILL, SATURATION_DECODE, N_SATURATION_STAGES };

/* Sheddable requests are refused with the probability k * s^power, at most 1, where s is the mean
 * of the endpoints' loads, each as a share of the limit that is nearest to being reached. */
struct pool_admitter {
    bool on;
    double queue_depth, kv_cache; /* the limits */
    double power, k;
};

/* A number for the proxy, in dynamic metadata, that is computed from a response's usage
 * (pick/session/reporter.c). */
struct cel_program;
struct pool_reporter {
    struct str name_space, key;
    const struct cel_program *expression;
    const struct cel_program *condition; /* NULL: always */
};
enum { POOL_MAX_REPORTERS = 8 };

struct profile;
struct profile_handler;
struct rollout_screener;
struct scrape_plan;
struct dns_plan;

struct pool_spec {
    struct arena *arena;
    struct str name;         /* of the pool, or of its InferencePool; empty: none */
    struct pool_match match; /* which requests the pool takes, among several pools */
    struct pool_spec_endpoint *endpoints;
    size_t n_endpoints, endpoints_cap;
    bool is_empty_on_purpose; /* the configuration says `endpoints: []` */
    struct {
        struct str path; /* len 0: none */
        bool is_watched;
    } endpoints_file;            /* with further endpoints: upstream's file-discovery */
    struct pool_labels selector; /* endpoints without all of these labels are left out */
    struct pool_model *models;
    size_t n_models, models_cap;
    const struct str
        *model_paths; /* ends of the paths whose bodies name the model; NULL: the default */
    size_t n_model_paths;
    unsigned parsers; /* enum model_parsers (codec/prompt/model_location.h): which paths have bodies
                         that can be read, and are refused otherwise; 0: as model_paths says */
    bool strict_models;     /* a request for an unknown model is refused */
    bool strict_models_set; /* the configuration sets strict_models */
    bool refuses_uncached;  /* requests with `Prefer: if-available`, where the endpoint has nothing
                               of their prompt */
    struct pool_objective *objectives;
    size_t n_objectives, objectives_cap;
    struct pool_rewrite *rewrites; /* the first that matches counts */
    size_t n_rewrites, rewrites_cap;
    struct pool_health health;
    struct dns_plan *dns;             /* endpoints by DNS names (pick/config's); NULL: none */
    const struct scrape_plan *scrape; /* how loads are scraped (pick/config's); NULL: not at all */
    const struct scrape_plan *scrape_gpus; /* the same of the use of GPUs */
    struct protocol protocol;
    struct pool_reporter reporters[POOL_MAX_REPORTERS];
    size_t n_reporters;
    struct protocol_headers agent_headers;  /* with the session of an agent, the first counts */
    const struct profile *profile;          /* pick/pool/profile/profile.h; NULL: the default */
    const struct profile_handler *handler;  /* of several profiles, of which `profile` is one
                                              (pick/pool/profile/handler.h); NULL: none */
    const struct rollout_screener *rollout; /* pick/pool/rollout.h; NULL: none */
    /* An endpoint is full when one of these limits is reached, a pool is saturated when all of its
     * endpoints are full; 0: no limit. The latter two are compared with its load report, while that
     * is valid. With a detector they are what its kind says. */
    uint64_t max_in_flight; /* of our requests */
    uint64_t queue_depth;   /* requests queued at the endpoint */
    double kv_cache;        /* share of the cache in use */
    struct pool_detector detector;
    struct pool_flow_control flow_control;
    struct pool_admitter admitter;
    struct pool_outlier_detection outlier_detection;
    uint64_t refused_ns;    /* for how long an endpoint that refused a connection is avoided */
    uint64_t retry_after_s; /* retry-after of a request that is shed */
    struct pool_spec_note *notes;
    size_t n_notes, notes_cap;
};

/* ---- when an endpoint is full: requests wait then (pool/flow) instead of being picked
 * --------- */

/* Whether load reports can make an endpoint full. */
static inline bool pool_limits_loads(const struct pool_spec *spec) {
    return spec->queue_depth > 0 || spec->kv_cache > 0;
}
/* The test for a full endpoint. Values that are not known are 0. Returns: the limit that is
 * reached, for messages; NULL: none. */
static inline const char *pool_limit_reached(const struct pool_spec *spec, double in_flight,
                                             double n_waiting, double kv_cache_used) {
    if (spec->max_in_flight > 0 && in_flight >= (double)spec->max_in_flight) {
        return "max_in_flight";
    }
    if (spec->queue_depth > 0 && n_waiting >= (double)spec->queue_depth) {
        return "queue_depth";
    }
    return spec->kv_cache > 0 && kv_cache_used >= spec->kv_cache ? "kv_cache" : NULL;
}

/* The largest of the values' shares of their limits: 1 where a limit is reached. */
static inline double pool_used_share(const struct pool_spec *spec, double in_flight,
                                     double n_waiting, double kv_cache_used) {
    double used = spec->max_in_flight > 0 ? in_flight / (double)spec->max_in_flight : 0;
    double waiting = spec->queue_depth > 0 ? n_waiting / (double)spec->queue_depth : 0;
    double cache = spec->kv_cache > 0 ? kv_cache_used / spec->kv_cache : 0;
    used = waiting > used ? waiting : used;
    return cache > used ? cache : used;
}

/* ---- filling a spec -------------------------------------------------------------------------- */

/* Creates a spec with the defaults and no endpoints. Owns: the caller, until pool_spec_free, or
 * until pool_update takes it. */
struct pool_spec *pool_spec_new(void);
/* NULL is allowed. */
void pool_spec_free(struct pool_spec *spec);

/* A copy in the spec's arena, NUL-terminated. */
struct str pool_spec_dup_text(struct pool_spec *spec, struct str text);

/* Each appends its argument, whose texts and arrays must be in the spec's arena. */
void pool_spec_add_endpoint(struct pool_spec *spec, const struct pool_spec_endpoint *endpoint);
void pool_spec_add_model(struct pool_spec *spec, const struct pool_model *model);
void pool_spec_add_objective(struct pool_spec *spec, const struct pool_objective *objective);
void pool_spec_add_rewrite(struct pool_spec *spec, const struct pool_rewrite *rewrite);
/* `setting` is copied, `why` must be a literal. */
void pool_spec_add_note(struct pool_spec *spec, struct str setting, const char *why);

/* Returns: NULL when there is no label with this key. */
const struct pool_label *pool_labels_find(struct pool_labels labels, struct str key);
/* Whether the labels include all of `selector`. */
bool pool_labels_match(struct pool_labels labels, struct pool_labels selector);
/* "Critical" */
const char *pool_criticality_name(enum pool_criticality criticality);
/* That of requests without an objective. */
static inline int64_t pool_criticality_priority(enum pool_criticality criticality) {
    static const int64_t priorities[] = {[POOL_STANDARD] = POOL_PRIORITY_STANDARD,
                                         [POOL_CRITICAL] = POOL_PRIORITY_CRITICAL,
                                         [POOL_SHEDDABLE] = POOL_PRIORITY_SHEDDABLE};
    return priorities[criticality];
}

#endif
