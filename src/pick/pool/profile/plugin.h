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
 * What it sees is in columns (choice.h), and the helpers of the common forms of a scorer are there,
 * too. A scorer that is one of these does not go through the candidates itself:
 *
 *     choice_add_least(choice, choice->scratch, weight);               less is better
 *     choice_add_matching(choice, parameters, weight, matches);        1 for some, 0 for others
 *
 * One that does writes plain loops over plain arrays, without calls and branches, under "#pragma
 * omp simd", in functions that are VECTORS (vectors.h): a tenth of what others cost, and each pick
 * goes through a thousand endpoints.
 *
 * Thread: one `struct choice` is of one thread; the same plugin, with the same parameters, runs on
 * many at the same time. */
#ifndef SLUICE_PICK_POOL_PROFILE_PLUGIN_H
#define SLUICE_PICK_POOL_PROFILE_PLUGIN_H

#include <math.h>

#include "core/base/doc/doc.h"
#include "pick/pool/profile/choice.h"

/* How a scorer says what holds from one request to the next: numbers that come from an endpoint's
 * own columns and from facts about all candidates. They are made anew only for the candidates that
 * have changed, as long as the facts are the same (standing_sums.h). */
struct plugin_standing {
    bool ages;      /* they change with the time, at each step of choice_clock */
    bool of_models; /* they are others when the request names a model */
    bool of_counts; /* they are of what each pick changes: in_flight, n_waiting, n_running,
                       n_tokens, cold_turn */
    /* The facts of a range; those that it does not set are 0. NULL: it needs none. */
    void (*gauge)(const void *parameters, const struct choice *choice, struct choice_range range,
                  struct choice_facts *out);
    /* Those of all are known: what does not matter is made 0. NULL: all matters. */
    void (*settle)(struct choice_facts *facts);
    /* Adds to `out`, at the candidates' places, numbers from 0 to `weight`. */
    void (*rate)(const void *parameters, const struct choice *choice,
                 const struct choice_facts *facts, float weight, struct choice_range range,
                 float *out);
    /* Where numbers have to be others for this request: adds the difference, by choice_add_to.
     * NULL: nowhere. */
    void (*correct)(const void *parameters, struct choice *choice, float weight);
};

enum plugin_kind { PLUGIN_FILTER, PLUGIN_SCORER, PLUGIN_PICKER };

struct plugin {
    const char *type; /* its name in configurations */
    enum plugin_kind kind;
    /* Reads what it is told into a struct of its own in `arena`; what is unknown is an error. The
     * node can be absent. NULL: it can't be told anything. */
    enum status (*read)(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err);
    /* Adds what it wants to know of requests, which must go together with what others want. NULL:
     * what is known anyway. */
    enum status (*want)(const void *parameters, struct pool_wants *wants, struct error *err);
    /* Of the kind that it is: one of these, and NULL. */
    /* Keeps some of the candidates, by choice_keep or choice_keep_one. */
    void (*filter)(const void *parameters, struct choice *choice);
    /* Adds to each candidate's score a number from 0 to `weight`, by the choice_add_…; one that
     * does it otherwise calls choice_touch_all. */
    void (*score)(const void *parameters, struct choice *choice, float weight);
    const struct plugin_standing *standing; /* of a scorer, or NULL: all depends on the request */
    /* Chooses one of the candidates, of which there is one at least. For the first choice `nth` is
     * 0; then, of the same request, for the next best: those chosen before are not candidates any
     * more. Returns: its place. */
    uint32_t (*pick)(void *parameters, const struct choice *choice, uint32_t nth);
};

/* All there are. */
extern const struct plugin *const PLUGINS[];
extern const size_t N_PLUGINS;

/* Returns: NULL when there is none of this type. */
const struct plugin *plugin_find(struct str type);
/* "scorer" */
const char *plugin_kind_name(enum plugin_kind kind);

/* Reads the parameters, or refuses them when it takes none. */
enum status plugin_read(const struct plugin *plugin, const struct doc_node *node,
                        struct arena *arena, void **parameters, struct error *err)
    __attribute__((warn_unused_result));

/* The `score` of one that has nothing but `standing`. */
void plugin_score_standing(const struct plugin_standing *standing, const void *parameters,
                           struct choice *choice, float weight);
/* Facts of two ranges become those of both. */
void plugin_join_facts(struct choice_facts *facts, const struct choice_facts *others);
/* What there is before the first range. */
static const struct choice_facts PLUGIN_NO_FACTS = {.least = INFINITY, .greatest = -INFINITY};

#define PLUGIN(name) extern const struct plugin plugin_##name;
#include "pick/pool/plugins.def"
#undef PLUGIN

#endif
