/* A plugin is a step of choosing an endpoint. There are three kinds, which run in this order:
 *     a filter takes candidates away,
 *     a scorer adds to each candidate's sum a number from 0 to 1, times its weight: 1 is best,
 *     a picker chooses from the candidates and their sums.
 * Names and meaning are those of the upstream project's plugins where there is one. Each is a
 * folder in plugins/ with its code, its test and a page about it; plugins.def lists them.
 *
 * A plugin keeps nothing of a request. It sees numbers that were read once, so that all plugins of
 * a choice see the same; it takes no lock, makes no I/O and cannot fail.
 *
 * Thread: one `struct choice` is of one thread; the same plugin, with the same parameters, runs on
 * many at the same time. */
#ifndef SLUICE_POOL_PLUGIN_H
#define SLUICE_POOL_PLUGIN_H

#include "base/dice.h"
#include "base/doc.h"
#include "pool/pool_snapshot.h"

/* An endpoint that the request may go to. */
struct candidate {
    uint32_t member;    /* of the snapshot */
    uint32_t in_flight; /* of this picker's requests */
    unsigned known;     /* LOAD_…: what the endpoint itself has said of late */
    uint32_t n_waiting; /* as estimated now; of one that has not said it, in_flight */
    uint32_t n_running; /* so is this */
    float kv_cache_used;
    float score;    /* the sum so far */
    uint32_t value; /* a scorer's own, for choice_add_least */
};

struct choice {
    const struct pool_snapshot *snapshot;
    struct str model;   /* as the endpoint will see it; ptr NULL: none is named */
    struct str session; /* whose requests belong together; ptr NULL: none is named */
    struct dice *dice;  /* whose numbers decide what is left to chance */
    uint64_t now_ns;
    uint32_t least_in_flight;     /* of all that there were at first */
    struct candidate *candidates; /* no endpoint twice */
    uint32_t n;
};

static inline const struct pool_member *choice_member(const struct choice *choice,
                                                      const struct candidate *candidate) {
    return &choice->snapshot->members[candidate->member];
}

static inline void choice_swap(struct choice *choice, uint32_t i, uint32_t k) {
    struct candidate other = choice->candidates[i];
    choice->candidates[i] = choice->candidates[k];
    choice->candidates[k] = other;
}

/* For filters: keeps those of which `keep` is true, in their order. */
void choice_keep(struct choice *choice, const void *parameters,
                 bool (*keep)(const void *parameters, const struct choice *choice,
                              const struct candidate *candidate));

/* For scorers by which less is better: the least of the candidates' values becomes 1, the greatest
 * 0, and those between lie in between. All are 1 where all are the same. */
void choice_add_least(struct choice *choice, float weight);

enum plugin_kind { PLUGIN_FILTER, PLUGIN_SCORER, PLUGIN_PICKER };

struct plugin {
    const char *type; /* its name in configurations */
    enum plugin_kind kind;
    /* Reads what it is told into a struct of its own in `arena`; what is unknown is an error. The
     * node can be absent. NULL: it can't be told anything. */
    enum status (*read)(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err);
    /* Of the kind that it is: one of these, and NULL. */
    /* Keeps some of the candidates, in any order. */
    void (*filter)(const void *parameters, struct choice *choice);
    /* Adds to each candidate's score. */
    void (*score)(const void *parameters, struct choice *choice, float weight);
    /* Puts those that it chooses in front, the first choice first: `most` of them, which is 1 at
     * least and no more than there are. */
    void (*pick)(void *parameters, struct choice *choice, uint32_t most);
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

#define PLUGIN(name) extern const struct plugin plugin_##name;
#include "pool/plugins.def"
#undef PLUGIN

#endif
