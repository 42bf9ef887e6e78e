/* Builds the indices of a snapshot: members by address, models and objectives by name. All memory
 * is in the spec's arena, which is freed as a whole. */
#include "pick/pool/snapshot.h"
#include "pick/pool/rollout.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "pick/pool/flow/saturation.h"
#include "pick/pool/profile/handler.h"
#include "pick/pool/profile/session_id.h"

static enum status snapshot_no_memory(const struct pool_spec *spec, struct error *err) {
    return error_no_memory(err, "a pool of %zu endpoints and %zu models", spec->n_endpoints,
                           spec->n_models);
}

/* ---- members --------------------------------------------------------------------------------- */

/* By address; equal ones in the order of the spec. */
static int compare_wanted(const void *a, const void *b) {
    const struct pool_spec_endpoint *left = *(const struct pool_spec_endpoint *const *)a;
    const struct pool_spec_endpoint *right = *(const struct pool_spec_endpoint *const *)b;
    int order = endpoint_address_compare(&left->address, &right->address);
    return order ? order : left < right ? -1 : left > right;
}

/* Returns: the number of endpoints that the selector matches, sorted at `out`. */
static size_t select_wanted(const struct pool_spec *spec, const struct pool_spec_endpoint **out) {
    size_t n = 0;
    for (size_t i = 0; i < spec->n_endpoints; i++) {
        if (pool_labels_match(spec->endpoints[i].labels, spec->selector)) {
            out[n++] = &spec->endpoints[i];
        }
    }
    qsort(out, n, sizeof(*out), compare_wanted);
    return n;
}

/* No loads are known at first. */
static enum status make_loads(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                              struct error *err) {
    size_t n = (size_t)snapshot->n_members + 1, n_bytes = n * sizeof(*snapshot->loads);
    snapshot->loads = arena_alloc_aligned(spec->arena, n_bytes, alignof(struct load_cell));
    snapshot->adapters = arena_calloc(spec->arena, n, sizeof(*snapshot->adapters));
    snapshot->preferred = arena_calloc(spec->arena, n / 64 + 1, sizeof(*snapshot->preferred));
    if (!snapshot->loads || !snapshot->adapters || !snapshot->preferred) {
        return snapshot_no_memory(spec, err);
    }
    memset((void *)snapshot->loads, 0, n_bytes);
    return ST_OK;
}

static enum status make_attributes(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                                   struct error *err) {
    const struct profile *profile = spec->profile;
    size_t n = profile ? profile->needs.n_attributes : 0, n_cells = n * snapshot->n_members;
    snapshot->attributes = arena_calloc(spec->arena, n_cells + 1, sizeof(*snapshot->attributes));
    if (!snapshot->attributes) {
        return snapshot_no_memory(spec, err);
    }
    snapshot->attribute_keys = n > 0 ? profile->needs.attributes : NULL;
    snapshot->n_attributes = (uint32_t)n;
    return ST_OK;
}

/* As many entries as there are members, about: past that, reading all members is no more work than
 * following the list. */
static enum status make_changes(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                                struct error *err) {
    uint32_t n = 64;
    while (n < snapshot->n_members) {
        n *= 2;
    }
    snapshot->changes.mask = n - 1;
    snapshot->changes.entries = arena_calloc(spec->arena, n, sizeof(*snapshot->changes.entries));
    return snapshot->changes.entries ? ST_OK : snapshot_no_memory(spec, err);
}

static enum status index_members(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                                 struct error *err) {
    size_t n = spec->n_endpoints;
    const struct pool_spec_endpoint **wanted =
        n < UINT32_MAX / 4 ? arena_calloc(spec->arena, n + 1, sizeof(struct pool_spec_endpoint *))
                           : NULL;
    struct pool_member *members = arena_calloc(spec->arena, n + 1, sizeof(*members));
    if (!wanted || !members) {
        return snapshot_no_memory(spec, err);
    }
    n = select_wanted(spec, wanted);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !endpoint_address_equal(&wanted[i]->address, &wanted[i - 1]->address)) {
            members[snapshot->n_members++] = (struct pool_member){
                .address = wanted[i]->address,
                .labels = wanted[i]->labels,
                .name = wanted[i]->name,
                .node = wanted[i]->node,
                .hash = (uint32_t)endpoint_address_hash(&wanted[i]->address),
                .profiles = profile_handler_allows(spec->handler, wanted[i]->labels),
                .stages = pool_spec_is_by_pool(spec) ? saturation_stages_of(wanted[i]->labels) : 0};
        }
    }
    snapshot->members = members;
    return make_loads(snapshot, spec, err);
}

/* Linear probing starts at this slot. */
static uint32_t first_slot(const struct pool_snapshot *snapshot,
                           const struct endpoint_address *address) {
    return (uint32_t)endpoint_address_hash(address) & snapshot->slots_mask;
}

static enum status index_addresses(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                                   struct error *err) {
    uint32_t n_slots = 4;
    while (n_slots < 2 * snapshot->n_members) {
        n_slots *= 2;
    }
    snapshot->slots = arena_calloc(spec->arena, n_slots, sizeof(*snapshot->slots));
    if (!snapshot->slots) {
        return snapshot_no_memory(spec, err);
    }
    snapshot->slots_mask = n_slots - 1;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        uint32_t slot = first_slot(snapshot, &snapshot->members[i].address);
        while (snapshot->slots[slot] != 0) {
            slot = (slot + 1) & snapshot->slots_mask;
        }
        snapshot->slots[slot] = i + 1;
    }
    return ST_OK;
}

const struct pool_member *pool_snapshot_find(const struct pool_snapshot *snapshot,
                                             const struct endpoint_address *address) {
    for (uint32_t slot = first_slot(snapshot, address); snapshot->slots[slot] != 0;
         slot = (slot + 1) & snapshot->slots_mask) {
        const struct pool_member *member = &snapshot->members[snapshot->slots[slot] - 1];
        if (endpoint_address_equal(&member->address, address)) {
            return member;
        }
    }
    return NULL;
}

const struct pool_member *pool_snapshot_find_ip(const struct pool_snapshot *snapshot,
                                                const struct endpoint_address *ip, size_t *n) {
    struct endpoint_address first = *ip;
    uint32_t low = 0, high = snapshot->n_members;
    first.port = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (endpoint_address_compare(&snapshot->members[middle].address, &first) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (high < snapshot->n_members &&
           endpoint_address_same_ip(&snapshot->members[high].address, ip)) {
        high++;
    }
    *n = high - low;
    return snapshot->members + low;
}

const struct pool_member *pool_snapshot_find_listed(const struct pool_snapshot *snapshot,
                                                    const struct endpoint_address *item,
                                                    size_t *n) {
    if (item->port == 0) {
        return pool_snapshot_find_ip(snapshot, item, n);
    }
    const struct pool_member *member = pool_snapshot_find(snapshot, item);
    *n = member ? 1 : 0;
    return member;
}

void pool_snapshot_get_load(const struct pool_snapshot *snapshot, const struct pool_member *member,
                            uint64_t now_ns, struct endpoint_load *out) {
    size_t i = (size_t)(member - snapshot->members);
    load_cell_get(&snapshot->loads[i], &snapshot->adapters[i], now_ns, out);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
    return str_compare(((const struct pool_model_entry *)a)->name,
                       ((const struct pool_model_entry *)b)->name);
}

/* All names of models and of rewrites. Returns: their number. */
static size_t list_names(const struct pool_spec *spec, struct pool_model_entry *out) {
    size_t n = 0;
    for (size_t i = 0; i < spec->n_models; i++) {
        out[n++] =
            (struct pool_model_entry){.name = spec->models[i].name, .model = &spec->models[i]};
    }
    for (size_t i = 0; i < spec->n_rewrites; i++) {
        const struct pool_rewrite *rewrite = &spec->rewrites[i];
        for (size_t k = 0; k < rewrite->n_models; k++) {
            out[n++] = (struct pool_model_entry){.name = rewrite->models[k], .rewrite = rewrite};
        }
    }
    return n;
}

/* Combines two entries of one name: of models and of rewrites the first in the spec counts. */
static void merge_name(struct pool_model_entry *into, const struct pool_model_entry *from) {
    if (from->model && (!into->model || from->model < into->model)) {
        into->model = from->model;
    }
    if (from->rewrite && (!into->rewrite || from->rewrite < into->rewrite)) {
        into->rewrite = from->rewrite;
    }
}

static enum status index_names(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                               struct error *err) {
    size_t n = spec->n_models;
    for (size_t i = 0; i < spec->n_rewrites; i++) {
        if (!checked_add(n, spec->rewrites[i].n_models, &n)) {
            return snapshot_no_memory(spec, err);
        }
        if (spec->rewrites[i].n_models == 0 && !snapshot->default_rewrite) {
            snapshot->default_rewrite = &spec->rewrites[i];
        }
    }
    struct pool_model_entry *names = arena_calloc(spec->arena, n, sizeof(*names));
    if (!names) {
        return snapshot_no_memory(spec, err);
    }
    n = list_names(spec, names);
    qsort(names, n, sizeof(*names), compare_names);
    for (size_t i = 0; i < n; i++) {
        if (snapshot->n_names > 0 && str_eq(names[snapshot->n_names - 1].name, names[i].name)) {
            merge_name(&names[snapshot->n_names - 1], &names[i]);
        } else {
            names[snapshot->n_names++] = names[i];
        }
    }
    snapshot->names = names;
    return ST_OK;
}

const struct pool_model_entry *pool_snapshot_find_name(const struct pool_snapshot *snapshot,
                                                       struct str name) {
    struct pool_model_entry wanted = {.name = name};
    return bsearch(&wanted, snapshot->names, snapshot->n_names, sizeof(wanted), compare_names);
}

static bool has_targets(const struct pool_model *model) {
    return model && model->targets.n > 0;
}

bool pool_snapshot_renames_model(const struct pool_snapshot *snapshot, struct str name) {
    const struct pool_model_entry *known = pool_snapshot_find_name(snapshot, name);
    return known ? known->rewrite || has_targets(known->model) : snapshot->default_rewrite != NULL;
}

/* Without these settings all models are treated alike. */
static bool models_matter(const struct pool_spec *spec) {
    bool matter = spec->strict_models || spec->n_rewrites > 0;
    for (size_t i = 0; i < spec->n_models && !matter; i++) {
        matter = has_targets(&spec->models[i]) || spec->models[i].criticality != POOL_STANDARD;
    }
    return matter;
}

/* ---- objectives ------------------------------------------------------------------------------ */

/* By name; equal ones in the order of the spec. */
static int compare_objectives(const void *a, const void *b) {
    const struct pool_objective *left = *(const struct pool_objective *const *)a;
    const struct pool_objective *right = *(const struct pool_objective *const *)b;
    int order = str_compare(left->name, right->name);
    return order ? order : left < right ? -1 : left > right;
}

static enum status index_objectives(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                                    struct error *err) {
    size_t n = spec->n_objectives;
    snapshot->objectives = arena_calloc(spec->arena, n, sizeof(struct pool_objective *));
    if (!snapshot->objectives) {
        return snapshot_no_memory(spec, err);
    }
    for (size_t i = 0; i < n; i++) {
        snapshot->objectives[i] = &spec->objectives[i];
    }
    qsort(snapshot->objectives, n, sizeof(struct pool_objective *), compare_objectives);
    snapshot->n_objectives = n;
    return ST_OK;
}

/* ---- usage limits ---------------------------------------------------------------------------- */

static int compare_ceilings(const void *a, const void *b) {
    const struct usage_ceiling *left = a, *right = b;
    return left->priority > right->priority ? -1 : left->priority < right->priority;
}

/* The priorities that the configuration names, in any order, some more than once. `out`: as many as
 * it has. Returns: their number. */
static size_t list_priorities(const struct pool_spec *spec, struct usage_ceiling *out) {
    const struct flow_limits *limits = &spec->flow_control.limits;
    size_t n = 0;
    out[n++].priority = POOL_PRIORITY_STANDARD;
    for (size_t i = 0; i < limits->n_bands; i++) {
        out[n++].priority = limits->bands[i].priority;
    }
    for (size_t i = 0; i < spec->n_objectives; i++) {
        out[n++].priority = spec->objectives[i].priority;
    }
    for (size_t i = 0; i < spec->n_models; i++) {
        out[n++].priority = pool_criticality_priority(spec->models[i].criticality);
    }
    return n;
}

static enum status make_ceilings(struct pool_snapshot *snapshot, const struct pool_spec *spec,
                                 struct error *err) {
    const struct pool_flow_control *flow = &spec->flow_control;
    if (!flow->on || flow->usage.kind == USAGE_WHOLE) {
        return ST_OK;
    }
    struct usage_ceiling *ceilings =
        arena_calloc(spec->arena, 1 + flow->limits.n_bands + spec->n_objectives + spec->n_models,
                     sizeof(*ceilings));
    if (!ceilings) {
        return snapshot_no_memory(spec, err);
    }
    size_t n_all = list_priorities(spec, ceilings), n = 0;
    qsort(ceilings, n_all, sizeof(*ceilings), compare_ceilings);
    for (size_t i = 0; i < n_all; i++) {
        if (n == 0 || ceilings[n - 1].priority != ceilings[i].priority) {
            ceilings[n++] = ceilings[i];
        }
    }
    usage_ceilings_fill(&flow->usage, ceilings, n);
    snapshot->ceilings = ceilings;
    snapshot->n_ceilings = n;
    return ST_OK;
}

/* ---- names: looking them up ------------------------------------------------------------------ */

const struct pool_objective *pool_snapshot_find_objective(const struct pool_snapshot *snapshot,
                                                          struct str name) {
    size_t low = 0, high = snapshot->n_objectives;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (str_compare(snapshot->objectives[middle]->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < snapshot->n_objectives && str_eq(snapshot->objectives[low]->name, name);
    return found ? snapshot->objectives[low] : NULL;
}

/* ---- new, ref, unref ------------------------------------------------------------------------- */

enum status pool_snapshot_new(struct pool_spec *spec, uint64_t generation,
                              struct pool_snapshot **out, struct error *err) {
    struct pool_snapshot *snapshot = arena_calloc(spec->arena, 1, sizeof(*snapshot));
    if (!snapshot) {
        return snapshot_no_memory(spec, err);
    }
    atomic_init(&snapshot->n_refs, 1);
    snapshot->generation = generation;
    snapshot->spec = spec;
    snapshot->models_matter = models_matter(spec);
    enum status st = index_members(snapshot, spec, err);
    if (st == ST_OK) {
        st = make_attributes(snapshot, spec, err);
    }
    if (st == ST_OK) {
        st = make_changes(snapshot, spec, err);
    }
    if (st == ST_OK) {
        st = index_addresses(snapshot, spec, err);
    }
    if (st == ST_OK) {
        st = index_names(snapshot, spec, err);
    }
    if (st == ST_OK) {
        st = index_objectives(snapshot, spec, err);
    }
    if (st == ST_OK) {
        st = make_ceilings(snapshot, spec, err);
    }
    if (st == ST_OK && spec->rollout) {
        snapshot->rollout = rollout_index_new(spec->rollout, snapshot, spec->arena);
        st = snapshot->rollout ? ST_OK : snapshot_no_memory(spec, err);
    }
    if (st == ST_OK) {
        *out = snapshot;
    }
    return st;
}

void pool_snapshot_ref(struct pool_snapshot *snapshot) {
    uint32_t before = atomic_fetch_add_explicit(&snapshot->n_refs, 1, memory_order_relaxed);
    assert(before > 0);
    (void)before;
}

void pool_snapshot_unref(struct pool_snapshot *snapshot) {
    uint32_t before = atomic_fetch_sub_explicit(&snapshot->n_refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1) {
        return;
    }
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint *endpoint = snapshot->members[i].endpoint;
        atomic_fetch_sub_explicit(&endpoint->n_snapshots, 1, memory_order_release);
    }
    session_tables_detach(snapshot);
    arena_free(snapshot->spec->arena);
}
