/* A plugin is a step of choosing an endpoint. There are three kinds, which run in this order:
 *     a filter takes candidates away,
 *     a scorer adds to each candidate's sum a number from 0 to 1, times its weight: 1 is best,
 *     a picker chooses from the candidates and their sums.
 * Names and meaning are those of the upstream project's plugins where there is one. Each is a
 * folder in plugins/ with its code, its test and a page about it; pick/pool/plugins.def lists them.
 *
 * A plugin keeps nothing of a request. It sees numbers that were read once, so that all plugins of
 * a choice see the same; it takes no lock, makes no I/O and cannot fail.
 *
 * What it sees is in columns (candidate_set.h), and the helpers of the common forms of a scorer are
 * there, too. A scorer that is one of these does not go through the candidates itself:
 *
 *     candidate_set_score_lower_is_better(choice, choice->scratch, weight);               less is
 *     better candidate_set_score_matching(choice, parameters, weight, matches);        1 for some,
 *     0 for others
 *
 * One that does writes plain loops over plain arrays, without calls and branches, under "#pragma
 * omp simd", in functions marked SIMD_TARGETS (candidate_set.h): a tenth of what others cost, and
 * each pick goes through a thousand endpoints.
 *
 * Thread: one `struct candidate_set` is of one thread; the same plugin, with the same parameters,
 * runs on many at the same time. */
#ifndef SLUICE_PICK_POOL_PROFILE_PLUGIN_H
#define SLUICE_PICK_POOL_PROFILE_PLUGIN_H

#include <math.h>

#include "core/base/doc/doc.h"
#include "pick/pool/profile/candidate_set.h"

/* How a scorer says what holds from one request to the next: numbers that come from an endpoint's
 * own columns and from facts about all candidates. They are made anew only for the candidates that
 * have changed, as long as the facts are the same (score_cache.h). */
struct plugin_cacheable {
    bool depends_on_time;   /* they change with the time, at each step of
                                  candidate_clock_ticks */
    bool depends_on_model;  /* they are others when the request names a model */
    bool depends_on_counts; /* they are of what each pick changes: in_flight, n_waiting, n_running,
                       n_tokens, last_cold_request */
    /* The facts of a range; those that it does not set are 0. NULL: it needs none. */
    void (*collect_stats)(const void *parameters, const struct candidate_set *candidates,
                          struct candidate_range range, struct range_stats *out);
    /* Those of all are known: what does not matter is made 0. NULL: all matters. */
    void (*normalize)(struct range_stats *stats);
    /* Adds to `out`, at the candidates' places, numbers from 0 to `weight`. */
    void (*score_range)(const void *parameters, const struct candidate_set *candidates,
                        const struct range_stats *stats, float weight, struct candidate_range range,
                        float *out);
    /* Where numbers have to be others for this request: adds the difference, by
     * candidate_set_add_score. NULL: nowhere. */
    void (*adjust_scores)(const void *parameters, struct candidate_set *candidates, float weight);
};

enum plugin_kind { PLUGIN_FILTER, PLUGIN_SCORER, PLUGIN_PICKER };

struct plugin {
    const char *type; /* its name in configurations */
    enum plugin_kind kind;
    /* Reads what it is told into a struct of its own in `arena`; what is unknown is an error. The
     * node can be absent. NULL: it can't be told anything. */
    enum status (*read_parameters)(const struct doc_node *node, struct arena *arena,
                                   void **parameters, struct error *err);
    /* Adds what it wants to know of requests, which must go together with what others want. NULL:
     * what is known anyway. */
    enum status (*add_needs)(const void *parameters, struct pool_request_needs *needs,
                             struct error *err);
    /* Of the kind that it is: one of these, and NULL. */
    /* Keeps some of the candidates, by candidate_set_filter or candidate_set_select. */
    void (*filter)(const void *parameters, struct candidate_set *candidates);
    /* Adds to each candidate's score a number from 0 to `weight`, by the choice_add_…; one that
     * does it otherwise calls candidate_set_mark_all_modified. */
    void (*score)(const void *parameters, struct candidate_set *candidates, float weight);
    const struct plugin_cacheable *cacheable; /* of a scorer, or NULL: all depends on the request */
    /* Chooses one of the candidates, of which there is one at least. For the first choice `nth` is
     * 0; then, of the same request, for the next best: those chosen before are not candidates any
     * more. Returns: its place. */
    uint32_t (*pick)(void *parameters, const struct candidate_set *candidates, uint32_t nth);
};

/* All there are. */
extern const struct plugin *const PLUGINS[];
extern const size_t N_PLUGINS;

/* Returns: NULL when there is none of this type. */
const struct plugin *plugin_find(struct str type);
/* "scorer" */
const char *plugin_kind_name(enum plugin_kind kind);

/* Reads the parameters, or refuses them when it takes none. */
enum status plugin_read_parameters(const struct plugin *plugin, const struct doc_node *node,
                                   struct arena *arena, void **parameters, struct error *err)
    __attribute__((warn_unused_result));

/* The `score` of one that has nothing but `standing`. */
void plugin_score_cacheable(const struct plugin_cacheable *cacheable, const void *parameters,
                            struct candidate_set *candidates, float weight);
/* Facts of two ranges become those of both. */
void range_stats_merge(struct range_stats *stats, const struct range_stats *others);
/* What there is before the first range. */
static const struct range_stats RANGE_STATS_EMPTY = {.min = INFINITY, .max = -INFINITY};

/* ---- endpoint roles -------------------------------------------------------------------------- */

/* What an endpoint does where several share a request: to take in pictures and sounds, to read the
 * prompt, to make tokens. It says so by its label "llm-d.ai/role", whose values are the upstream
 * project's. */
enum role { ROLE_ENCODE = 1, ROLE_PREFILL = 2, ROLE_DECODE = 4 };

/* Does the endpoint have it? One without the label only decodes. */
bool labels_have_role(struct pool_labels labels, enum role role);

/* ---- session affinity ------------------------------------------------------------------------ */

/* Which endpoint a session belongs to, without anything being kept of it: a session's value and an
 * endpoint's address are hashed together, and the highest hash wins (Thaler and Ravishankar 1998).
 * All pickers agree on it, and when an endpoint goes only its own sessions move. */
/* The place of its candidate; there is one at least, and choice->session is not empty. */
uint32_t session_affinity_index(const struct candidate_set *candidates);

static inline bool session_affinity_applies(const struct candidate_set *candidates) {
    return candidates->session.len > 0 && candidates->n > 0;
}

#define PLUGIN(name) extern const struct plugin plugin_##name;
#include "pick/pool/plugins.def"
#undef PLUGIN

#endif
