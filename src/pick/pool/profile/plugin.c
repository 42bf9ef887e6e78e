/* The list of plugins and what several plugins share. */
#include "pick/pool/profile/plugin.h"

#include "core/base/hash.h"

#define PLUGIN(name) &plugin_##name,
const struct plugin *const PLUGINS[] = {
#include "pick/pool/plugins.def"
};
#undef PLUGIN

const size_t N_PLUGINS = sizeof(PLUGINS) / sizeof(PLUGINS[0]);

const struct plugin *plugin_find(struct str type) {
    for (size_t i = 0; i < N_PLUGINS; i++) {
        if (str_eq(type, str_of(PLUGINS[i]->type))) {
            return PLUGINS[i];
        }
    }
    return NULL;
}

const char *plugin_kind_name(enum plugin_kind kind) {
    static const char *const names[] = {
        [PLUGIN_FILTER] = "filter", [PLUGIN_SCORER] = "scorer", [PLUGIN_PICKER] = "picker"};
    return names[kind];
}

void plugin_read(const struct plugin *plugin, struct doc_reader *reader,
                 const struct doc_node *node, void **parameters) {
    static const struct doc_member none[] = {{0}};
    const struct doc_member *members = plugin->parameters ? plugin->parameters : none;
    *parameters = NULL;
    if (plugin->parameters_size > 0) {
        *parameters = doc_reader_calloc(reader, 1, plugin->parameters_size);
    }
    if (*parameters) {
        doc_reader_presets(members, *parameters);
    }
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, members, *parameters);
    } else {
        doc_reader_members(reader, node, members, *parameters);
    }
}

enum status plugin_read_parameters(const struct plugin *plugin, const struct doc_node *node,
                                   struct arena *arena, void **parameters, struct error *err) {
    static const char *const what[] = {
        [PLUGIN_FILTER] = "a filter", [PLUGIN_SCORER] = "a scorer", [PLUGIN_PICKER] = "a picker"};
    struct doc_reader reader = {.arena = arena, .what = what[plugin->kind], .err = err};
    plugin_read(plugin, &reader, node, parameters);
    return reader.status;
}

enum status plugin_needs_body(void *parameters, struct pool_request_needs *needs,
                              struct error *err) {
    (void)parameters;
    (void)err;
    needs->prompt = needs->body = true;
    return ST_OK;
}

void range_stats_merge(struct range_stats *stats, const struct range_stats *others) {
    stats->min = others->min < stats->min ? others->min : stats->min;
    stats->max = others->max > stats->max ? others->max : stats->max;
    stats->sum += others->sum;
    stats->n += others->n;
}

void plugin_score_cacheable(const struct plugin_cacheable *cacheable, const void *parameters,
                            struct candidate_set *candidates, float weight) {
    struct candidate_range all = {0, candidates->n};
    struct range_stats stats = {0};
    if (cacheable->collect_stats) {
        cacheable->collect_stats(parameters, candidates, all, &stats);
    }
    if (cacheable->normalize) {
        cacheable->normalize(&stats);
    }
    cacheable->score_range(parameters, candidates, &stats, weight, all, candidates->score);
    candidate_set_mark_all_modified(candidates);
}

/* ---- endpoint roles -------------------------------------------------------------------------- */

bool labels_have_role(struct pool_labels labels, enum role role) {
    static const struct {
        const char *name;
        unsigned roles;
    } rows[] = {{"encode", ROLE_ENCODE},
                {"prefill", ROLE_PREFILL},
                {"decode", ROLE_DECODE},
                {"encode-prefill", ROLE_ENCODE | ROLE_PREFILL},
                {"prefill-decode", ROLE_PREFILL | ROLE_DECODE},
                {"both", ROLE_PREFILL | ROLE_DECODE},
                {"encode-prefill-decode", ROLE_ENCODE | ROLE_PREFILL | ROLE_DECODE}};
    const struct pool_label *label = pool_labels_find(labels, STR("llm-d.ai/role"));
    for (size_t i = 0; label && i < sizeof(rows) / sizeof(*rows); i++) {
        if (str_is(label->value, rows[i].name)) {
            return (rows[i].roles & role) != 0;
        }
    }
    return !label && role == ROLE_DECODE;
}

/* ---- the bound of affinities ----------------------------------------------------------------- */

static const float AFFINITY_FACTOR = 1.25f;

float affinity_limit_compute(struct candidate_set *candidates) {
    float n_in_flight = candidate_set_in_flight(candidates) + 1; /* with this request */
    float limit = n_in_flight * AFFINITY_FACTOR / (float)candidates->n;
    candidates->affinity_limit = limit > AFFINITY_MIN_LIMIT ? limit : AFFINITY_MIN_LIMIT;
    return candidates->affinity_limit;
}

/* ---- session affinity ------------------------------------------------------------------------ */

/* A number from 0 to 2^24 - 1 for each candidate; the highest wins. Each bit of the input changes
 * all bits of the result (Wellons 2018). */
SIMD_TARGETS static void hash_candidates(const struct candidate_set *candidates, uint32_t session) {
    const uint32_t *address = candidates->columns->address;
#pragma omp simd
    for (uint32_t i = 0; i < candidates->n; i++) {
        uint32_t x = address[i] ^ session;
        x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
        x = (x ^ x >> 15) * UINT32_C(0x846ca68b);
        candidates->scratch[i] = (float)(int32_t)((x ^ x >> 16) >> 8);
    }
}

/* Chooses by a second hash among candidates with the same number: they are always the same ones
 * where the hashes of their addresses are equal. */
static uint32_t break_tie(const struct candidate_set *candidates, uint64_t session,
                          const struct column_max *best) {
    uint64_t highest = 0;
    uint32_t pos = 0;
    for (uint32_t nth = 0; nth < best->n; nth++) {
        uint32_t i = column_max_index(best, candidates->scratch, nth);
        struct prng prng = {session ^
                            endpoint_address_hash(&candidate_set_member(candidates, i)->address)};
        uint64_t hash = prng_next(&prng);
        if (nth == 0 || hash > highest) {
            highest = hash;
            pos = i;
        }
    }
    return pos;
}

static uint32_t find_highest_hash(const struct candidate_set *candidates, uint64_t session) {
    struct column_max best = column_max_find(candidates, candidates->scratch);
    return best.n == 1 ? column_max_index(&best, candidates->scratch, 0)
                       : break_tie(candidates, session, &best);
}

uint32_t session_affinity_index(const struct candidate_set *candidates, float limit) {
    const float *in_flight = candidates->columns->in_flight;
    uint64_t session = fnv1a_of(candidates->session);
    hash_candidates(candidates, (uint32_t)(session ^ session >> 32));
    uint32_t found = find_highest_hash(candidates, session);
    if (in_flight[found] < limit) {
        return found;
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        candidates->scratch[i] = in_flight[i] < limit ? candidates->scratch[i] : -1;
    }
    return find_highest_hash(candidates, session);
}
