/* What a pool should be: the endpoints that are wanted and what requests may ask for, as the
 * configuration says it. Whoever discovers endpoints fills one in and gives it to the pool
 * (pool_update), which keeps it; from then on it never changes.
 *
 * Everything lives in the spec's own arena: texts that are put in must be copied there
 * (pool_spec_dup_text) or be literals. It refuses to know files.
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
#include "pick/pool/match.h"

struct pool_label {
    struct str key;
    struct str value;
};

struct pool_labels {
    const struct pool_label *items;
    size_t n;
};

struct pool_spec_endpoint {
    struct endpoint_address address;
    struct pool_labels labels;
};

/* A model that a request is sent on as. */
struct pool_target {
    struct str model;
    uint32_t weight; /* its share is weight / sum of all weights; 0: never */
};

struct pool_targets {
    const struct pool_target *items;
    size_t n; /* 0: the model keeps its name */
};

/* InferenceModel's (v1alpha2). A model without one is Standard. */
enum pool_criticality { POOL_STANDARD, POOL_CRITICAL, POOL_SHEDDABLE };

struct pool_model {
    struct str name; /* as requests name it */
    enum pool_criticality criticality;
    struct pool_targets targets;
};

/* InferenceObjective: below 0 is sheddable. */
struct pool_objective {
    struct str name;
    int64_t priority;
};

/* A rule of an InferenceModelRewrite. */
struct pool_rewrite {
    const struct str *models; /* as requests name them */
    size_t n_models;          /* 0: every model that nothing else knows */
    struct pool_targets targets;
};

enum pool_health_kind { POOL_HEALTH_NONE, POOL_HEALTH_HTTP, POOL_HEALTH_GRPC, POOL_HEALTH_TCP };

/* How readiness is found out. */
struct pool_health {
    enum pool_health_kind kind; /* POOL_HEALTH_NONE: every endpoint is ready */
    struct str path;            /* HTTP: what is asked for */
    struct str service;         /* gRPC: the name that is asked about */
    uint16_t port;              /* 0: the endpoint's own */
    uint64_t interval_ns;
    uint64_t timeout_ns;
    unsigned n_healthy;   /* successes in a row until an endpoint is ready */
    unsigned n_unhealthy; /* failures in a row until it is not */
};

/* Requests wait while the pool is saturated. */
struct pool_flow_control {
    bool on;
    uint64_t max_wait_ns;
    struct flow_limits limits;
};

/* What criticalities are as priorities, where a request has no objective that is known. */
enum { POOL_PRIORITY_STANDARD = 0, POOL_PRIORITY_CRITICAL = 10, POOL_PRIORITY_SHEDDABLE = -1 };

/* A setting that is understood, and changes nothing, or not all that its writer may think. */
struct pool_spec_note {
    struct str setting;
    const char *why;
};

struct profile;
struct scrape_plan;
struct dns_plan;

struct pool_spec {
    struct arena *arena;
    struct str name;         /* of the pool, or of its InferencePool; empty: none is named */
    struct pool_match match; /* which requests it is for, where there are others */
    struct pool_spec_endpoint *endpoints;
    size_t n_endpoints, endpoints_cap;
    struct pool_labels selector; /* endpoints without all of these are not in the pool */
    struct pool_model *models;
    size_t n_models, models_cap;
    bool strict_models;     /* a request for a model that nothing here knows is refused */
    bool strict_models_set; /* that is so by the configuration's own word */
    struct pool_objective *objectives;
    size_t n_objectives, objectives_cap;
    struct pool_rewrite *rewrites; /* the first that matches counts */
    size_t n_rewrites, rewrites_cap;
    struct pool_health health;
    struct dns_plan *dns;             /* endpoints that are names (discover's); NULL: none */
    const struct scrape_plan *scrape; /* how loads are asked for (discover's); NULL: not at all */
    struct protocol protocol;
    const struct profile *profile; /* pick/pool/profile/profile.h; NULL: the default */
    /* An endpoint is full when one of these is reached, a pool is saturated when all of its
     * endpoints are full; 0: not by that. The latter two as it says itself, while that counts. */
    uint64_t max_in_flight; /* of our requests */
    uint64_t queue_depth;   /* requests that wait there */
    double kv_cache;        /* share of it that is used */
    struct pool_flow_control flow_control;
    uint64_t refused_ns;    /* how long an endpoint that refused a connection is avoided */
    uint64_t retry_after_s; /* what a request that is shed is told */
    struct pool_spec_note *notes;
    size_t n_notes, notes_cap;
};

/* Starts with the defaults and nothing in it. Owns: *out until pool_spec_free, or until the pool
 * takes it. */
enum status pool_spec_new(struct pool_spec **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. */
void pool_spec_free(struct pool_spec *spec);

/* A copy in the spec's arena, NUL-terminated. Returns: ptr NULL when out of memory. */
struct str pool_spec_dup_text(struct pool_spec *spec, struct str text);

/* Each appends what is given, whose texts and arrays must be the spec's already. Returns:
 * ST_NO_MEMORY. */
enum status pool_spec_add_endpoint(struct pool_spec *spec,
                                   const struct pool_spec_endpoint *endpoint, struct error *err)
    __attribute__((warn_unused_result));
enum status pool_spec_add_model(struct pool_spec *spec, const struct pool_model *model,
                                struct error *err) __attribute__((warn_unused_result));
enum status pool_spec_add_objective(struct pool_spec *spec, const struct pool_objective *objective,
                                    struct error *err) __attribute__((warn_unused_result));
enum status pool_spec_add_rewrite(struct pool_spec *spec, const struct pool_rewrite *rewrite,
                                  struct error *err) __attribute__((warn_unused_result));

/* The setting is copied, `why` is a literal. Returns: ST_NO_MEMORY. */
enum status pool_spec_add_note(struct pool_spec *spec, struct str setting, const char *why,
                               struct error *err) __attribute__((warn_unused_result));

/* Returns: NULL when there is no label of this key. */
const struct pool_label *pool_labels_find(struct pool_labels labels, struct str key);
/* Has it every label of `selector`? */
bool pool_labels_match(struct pool_labels labels, struct pool_labels selector);
/* Does what endpoints say of themselves make them full? */
static inline bool pool_limits_loads(const struct pool_spec *spec) {
    return spec->queue_depth > 0 || spec->kv_cache > 0;
}
/* "Critical" */
const char *pool_criticality_name(enum pool_criticality criticality);

#endif
