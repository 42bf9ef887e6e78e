/* The lists of a spec, which grow in its arena. */
#include "pick/pool/spec.h"

#include "core/base/checked.h"
#include "core/must/must.h"

static const uint64_t REFUSED_NS = UINT64_C(5000000000);
static const uint64_t MAX_WAIT_NS = UINT64_C(30000000000);
enum {
    MAX_IN_FLIGHT = 256,
    RETRY_AFTER_S = 1,
    FIRST_CAP = 8,
    MAX_WAITING = 10000,
    MAX_WAITING_BYTES = 256 << 20,
};

struct pool_spec *pool_spec_new(void) {
    struct arena *arena = must_arena_new("the pool's configuration");
    struct pool_spec *spec = arena_calloc(arena, 1, sizeof(*spec));
    spec->arena = arena;
    spec->name = STR("");
    spec->max_in_flight = MAX_IN_FLIGHT;
    spec->flow_control = (struct pool_flow_control){
        .max_wait_ns = MAX_WAIT_NS,
        .limits = {.max_requests = MAX_WAITING, .max_bytes = MAX_WAITING_BYTES}};
    spec->outlier_detection = (struct pool_outlier_detection){
        .consecutive_5xx = 5,
        .consecutive_gateway_failure = 5,
        .failure_percentage_threshold = 85,
        .failure_percentage_request_volume = 50,
        .interval_ns = UINT64_C(10000000000),
        .base_ejection_time_ns = UINT64_C(30000000000),
        .max_ejection_time_ns = UINT64_C(300000000000),
        .max_ejection_percent = 50,
    };
    spec->refused_ns = REFUSED_NS;
    spec->retry_after_s = RETRY_AFTER_S;
    protocol_init(&spec->protocol);
    return spec;
}

void pool_spec_free(struct pool_spec *spec) {
    if (spec) {
        arena_free(spec->arena);
    }
}

struct str pool_spec_dup_text(struct pool_spec *spec, struct str text) {
    return arena_dup(spec->arena, text);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Returns: the list with capacity for one more item of `size` bytes. */
static void *grow_list(struct arena *arena, void *items, size_t n, size_t *cap, size_t size) {
    if (n < *cap) {
        return items;
    }
    size_t larger = 2 * *cap + FIRST_CAP, old_bytes = *cap * size, new_bytes;
    if (!checked_mul(larger, size, &new_bytes)) {
        must_end("the pool's configuration");
    }
    *cap = larger;
    return arena_realloc(arena, items, old_bytes, new_bytes);
}

void pool_spec_add_endpoint(struct pool_spec *spec, const struct pool_spec_endpoint *endpoint) {
    spec->endpoints = grow_list(spec->arena, spec->endpoints, spec->n_endpoints,
                                &spec->endpoints_cap, sizeof(*spec->endpoints));
    spec->endpoints[spec->n_endpoints++] = *endpoint;
}

void pool_spec_add_model(struct pool_spec *spec, const struct pool_model *model) {
    spec->models = grow_list(spec->arena, spec->models, spec->n_models, &spec->models_cap,
                             sizeof(*spec->models));
    spec->models[spec->n_models++] = *model;
}

void pool_spec_add_objective(struct pool_spec *spec, const struct pool_objective *objective) {
    spec->objectives = grow_list(spec->arena, spec->objectives, spec->n_objectives,
                                 &spec->objectives_cap, sizeof(*spec->objectives));
    spec->objectives[spec->n_objectives++] = *objective;
}

void pool_spec_add_rewrite(struct pool_spec *spec, const struct pool_rewrite *rewrite) {
    spec->rewrites = grow_list(spec->arena, spec->rewrites, spec->n_rewrites, &spec->rewrites_cap,
                               sizeof(*spec->rewrites));
    spec->rewrites[spec->n_rewrites++] = *rewrite;
}

void pool_spec_add_note(struct pool_spec *spec, struct str setting, const char *why) {
    spec->notes =
        grow_list(spec->arena, spec->notes, spec->n_notes, &spec->notes_cap, sizeof(*spec->notes));
    spec->notes[spec->n_notes++] = (struct pool_spec_note){pool_spec_dup_text(spec, setting), why};
}

/* ---- names ----------------------------------------------------------------------------------- */

const struct pool_label *pool_labels_find(struct pool_labels labels, struct str key) {
    for (size_t i = 0; i < labels.n; i++) {
        if (str_eq(labels.items[i].key, key)) {
            return &labels.items[i];
        }
    }
    return NULL;
}

static bool has_label(struct pool_labels labels, const struct pool_label *wanted) {
    const struct pool_label *label = pool_labels_find(labels, wanted->key);
    return label && str_eq(label->value, wanted->value);
}

bool pool_labels_match(struct pool_labels labels, struct pool_labels selector) {
    for (size_t i = 0; i < selector.n; i++) {
        if (!has_label(labels, &selector.items[i])) {
            return false;
        }
    }
    return true;
}

const char *pool_criticality_name(enum pool_criticality criticality) {
    static const char *const names[] = {
        [POOL_STANDARD] = "Standard", [POOL_CRITICAL] = "Critical", [POOL_SHEDDABLE] = "Sheddable"};
    return names[criticality];
}
