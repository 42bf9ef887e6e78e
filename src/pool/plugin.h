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
 * What it sees is in columns (choice.h), and the helpers of the common forms of a scorer are there,
 * too. A scorer that is one of these does not go through the candidates itself:
 *
 *     choice_add_least(choice, choice->columns->n_waiting, weight);    less is better
 *     choice_add_shares(choice, choice->scratch, weight);              numbers from 0 to 1
 *     choice_add_matching(choice, parameters, weight, matches);        1 for some, 0 for others
 *
 * One that does writes plain loops over plain arrays, without calls and branches, under "#pragma
 * omp simd", in functions that are VECTORS (vectors.h): a tenth of what others cost, and each pick
 * goes through a thousand endpoints.
 *
 * Thread: one `struct choice` is of one thread; the same plugin, with the same parameters, runs on
 * many at the same time. */
#ifndef SLUICE_POOL_PLUGIN_H
#define SLUICE_POOL_PLUGIN_H

#include "base/doc.h"
#include "pool/choice.h"

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
    /* Adds to each candidate's score a number from 0 to `weight`. */
    void (*score)(const void *parameters, struct choice *choice, float weight);
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

#define PLUGIN(name) extern const struct plugin plugin_##name;
#include "pool/plugins.def"
#undef PLUGIN

#endif
