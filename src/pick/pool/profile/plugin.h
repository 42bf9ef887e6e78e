/* A plugin is a step of a profile. There are three kinds, which run in this order:
 * - a filter removes candidates,
 * - a scorer adds to each candidate's score a number from 0 to 1, times its weight; 1 is best,
 * - a picker chooses by the scores.
 *
 * Names and meaning are those of the upstream project's plugins where there is one. Each plugin is
 * a folder in plugins/ with its code, its test and a README; pick/pool/plugins.def lists them.
 *
 * A plugin keeps no state of a request. All plugins of a pick read the same values; they take no
 * lock, do no I/O and cannot fail.
 *
 * The values are in columns (candidate_set.h), with a helper for common scorers:
 * candidate_set_score_matching. A scorer that needs a loop of its own writes it over plain arrays,
 * without calls and branches, under "#pragma omp simd", in a function marked SIMD_TARGETS
 * (candidate_set.h): that takes a tenth of the time, and each pick may loop over a thousand
 * endpoints.
 *
 * Thread: a `struct candidate_set` belongs to one thread; a plugin with the same parameters runs on
 * many threads at once. */
#ifndef SLUICE_PICK_POOL_PROFILE_PLUGIN_H
#define SLUICE_PICK_POOL_PROFILE_PLUGIN_H

#include <math.h>

#include "core/base/doc/reader.h"
#include "pick/pool/profile/candidate_set.h"

/* The part of a scorer that can be cached between requests: scores that depend only on the
 * endpoint's columns and on the range stats of all candidates. They are recomputed only for changed
 * candidates while the stats are the same (score_cache.h). */
struct plugin_cacheable {
    bool depends_on_time;  /* with each step of candidate_clock_ticks */
    bool depends_on_model; /* on whether the request names a model */
    /* Computes the stats of a range; values that it does not set are 0. NULL: it needs none. */
    void (*collect_stats)(const void *parameters, const struct candidate_set *candidates,
                          struct candidate_range range, struct range_stats *out);
    /* Clears what does not matter in the stats of all candidates. NULL: everything matters. */
    void (*normalize)(struct range_stats *stats);
    /* Adds scores from 0 to `weight` to `out`, by candidate index. */
    void (*score_range)(const void *parameters, const struct candidate_set *candidates,
                        const struct range_stats *stats, float weight, struct candidate_range range,
                        float *out);
    /* Corrects scores for this request: adds the difference, by candidate_set_add_score. NULL:
     * none. */
    void (*adjust_scores)(const void *parameters, struct candidate_set *candidates, float weight);
};

#define PLUGIN_PARAMETERS(type, table) .parameters = (table), .parameters_size = sizeof(type)

enum plugin_kind { PLUGIN_FILTER, PLUGIN_SCORER, PLUGIN_PICKER };

struct plugin {
    const char *type; /* name in configurations */
    enum plugin_kind kind;
    /* The parameters, a row each with name, type, bounds, default (`.preset`) and field, and the
     * size of their struct (PLUGIN_PARAMETERS). The struct is zeroed before presets are set. Rows
     * are read, and checked, also where the plugin is given without parameters. NULL: none. */
    const struct doc_member *parameters;
    size_t parameters_size; /* 0: no struct */
    /* Adds what it needs of requests, and finds the producers that it uses; fails where there is
     * none, or where that conflicts with other plugins' needs. NULL: nothing more. */
    enum status (*add_needs)(void *parameters, struct pool_request_needs *needs, struct error *err);
    /* By kind one of these is set, the others are NULL; but a scorer may have a filter, too. */
    /* Keeps some of the candidates, by candidate_set_filter or candidate_set_select. */
    void (*filter)(const void *parameters, struct candidate_set *candidates);
    /* Of a filter by requests in flight: whether it keeps an endpoint with so many, and so many
     * tokens of them. When the request is counted there it is asked again, as other picks may have
     * been sent there meanwhile. NULL: it goes by other things, or may keep an endpoint that is
     * above its limit. */
    bool (*admits)(const void *parameters, uint32_t in_flight, uint64_t n_tokens);
    /* Of a filter by labels alone: whether it keeps an endpoint with these. NULL: it depends on
     * more. A request waits only for endpoints that it may get. */
    bool (*allows)(const void *parameters, struct pool_labels labels);
    /* Adds a number from 0 to `weight` to each candidate's score with the candidate_set_score_…
     * functions; otherwise it calls candidate_set_mark_all_modified. */
    void (*score)(const void *parameters, struct candidate_set *candidates, float weight);
    const struct plugin_cacheable *cacheable; /* of a scorer, or NULL: all scores depend on the
                                                 request */
    /* Of a scorer: the part of its weight that the load of an endpoint moves, and the part that an
     * affinity of the request does. */
    float load_share, affinity_share;
    /* Chooses a candidate; there is one at least. `nth` is 0 for the first choice of a request,
     * then 1, 2, … for the next best, after the chosen ones were removed. Returns: its index. */
    uint32_t (*pick)(void *parameters, const struct candidate_set *candidates, uint32_t nth);
    bool has_max_endpoints; /* of a picker: its parameters are struct picker_parameters */
};

/* All plugins. */
extern const struct plugin *const PLUGINS[];
extern const size_t N_PLUGINS;

/* Returns: NULL when there is none of this type. */
const struct plugin *plugin_find(struct str type);
/* "scorer" */
const char *plugin_kind_name(enum plugin_kind kind);

/* Reads the parameters into a struct in `arena`, or rejects them when the plugin has none. The node
 * may be absent. */
enum status plugin_read_parameters(const struct plugin *plugin, const struct doc_node *node,
                                   struct arena *arena, void **parameters,
                                   struct error *err) SLUICE_MUST_USE;
/* The same with a reader, which receives the errors. */
void plugin_read(const struct plugin *plugin, struct doc_reader *reader,
                 const struct doc_node *node, void **parameters);

/* `add_needs` of plugins that read what only the body may tell: the model's name, or the prompt.
 * The pick waits for it. */
enum status plugin_needs_body(void *parameters, struct pool_request_needs *needs,
                              struct error *err) SLUICE_MUST_USE;

/* `score` for plugins whose scores are all cacheable. */
void plugin_score_cacheable(const struct plugin_cacheable *cacheable, const void *parameters,
                            struct candidate_set *candidates, float weight);
/* Merges range stats. */
void range_stats_merge(struct range_stats *stats, const struct range_stats *others);
/* The stats of an empty range. */
static const struct range_stats RANGE_STATS_EMPTY = {.min = INFINITY, .max = -INFINITY};

/* ---- endpoint roles -------------------------------------------------------------------------- */

/* The role of an endpoint where several share a request: processing images and audio, reading the
 * prompt, generating tokens. Set by the label "llm-d.ai/role", with the upstream project's
 * values. */
enum role { ROLE_ENCODE = 1, ROLE_PREFILL = 2, ROLE_DECODE = 4 };

/* Whether the labels include the role. Without the label it is ROLE_DECODE. */
bool labels_have_role(struct pool_labels labels, enum role role);

/* ---- the bound of affinities ----------------------------------------------------------------- */

/* What an endpoint has of a request (its prompt's beginning, its session, its adapter) attracts
 * requests until the endpoint has a quarter more of them in flight than the candidates have on
 * average (consistent hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam 2016). From
 * there on its load decides, whatever the weights are. A long beginning of a prompt is worth
 * waiting for some requests more: elsewhere it would be computed again. */

/* An endpoint with so many requests in flight, or more, is not preferred for its affinity: at least
 * AFFINITY_MIN_LIMIT. Some candidate has fewer. There is a candidate. */
enum { AFFINITY_MIN_LIMIT = 4 };
float affinity_limit_compute(struct candidate_set *candidates);

static inline float affinity_limit(struct candidate_set *candidates) {
    return candidates->affinity_limit > 0 ? candidates->affinity_limit
                                          : affinity_limit_compute(candidates);
}

/* How many requests in flight beyond the limit an endpoint may have that has so many blocks of the
 * prompt: one for each AFFINITY_TOKENS_PER_REQUEST tokens after the first AFFINITY_FREE_TOKENS. */
enum { AFFINITY_FREE_TOKENS = 2048, AFFINITY_TOKENS_PER_REQUEST = 512 };
static inline float affinity_allowance(const struct prefix_matches *prefix, uint32_t n_blocks) {
    const float n_tokens = (float)n_blocks * (float)prefix->block_bytes / PROMPT_BYTES_PER_TOKEN -
                           AFFINITY_FREE_TOKENS;
    return n_tokens > 0 ? n_tokens / AFFINITY_TOKENS_PER_REQUEST : 0;
}

/* ---- pickers --------------------------------------------------------------------------------- */

/* The parameters of the upstream project's pickers. */
enum { PICKER_MAX_ENDPOINTS = 8 };
struct picker_parameters {
    uint32_t max_endpoints; /* in the answer, the best first; 0: 1 */
};

/* Whether an active-request-scorer has no parameters that differ from the defaults. */
bool active_request_scorer_is_plain(const void *parameters);

/* ---- session affinity ------------------------------------------------------------------------ */

/* The endpoint of a session, without stored state: session and address are hashed together, and the
 * highest hash wins (Thaler and Ravishankar 1998). All pickers choose the same one, and when an
 * endpoint is removed only its own sessions move. */
/* The index of the session's candidate among those with fewer than `limit` requests in flight,
 * of which there is one at least; INFINITY: no limit. candidates->session is not empty. */
uint32_t session_affinity_index(const struct candidate_set *candidates, float limit);

static inline bool session_affinity_applies(const struct candidate_set *candidates) {
    return candidates->session.len > 0 && candidates->n > 0;
}

#define PLUGIN(name) extern const struct plugin plugin_##name;
#include "pick/pool/plugins.def"
#undef PLUGIN

#endif
