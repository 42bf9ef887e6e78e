/* Which of the known names did a person mean who wrote this one? Used for flags, subcommands, a
 * model's inputs and its settings. */
#ifndef SLUICE_CORE_BASE_SUGGEST_H
#define SLUICE_CORE_BASE_SUGGEST_H

#include <stddef.h>

#include "core/base/str.h"

enum { SUGGEST_MAX_BYTES = 63 };
/* How many letters must be inserted, removed, replaced or swapped with their neighbour to make `b`
 * of `a`. Texts over SUGGEST_MAX_BYTES are not compared: SIZE_MAX. */
size_t suggest_distance(struct str a, struct str b);

/* Keeps the best of the names shown to it, as a view. Start with zeros. */
struct suggestion {
    struct str best; /* ptr NULL: none was near enough */
    size_t distance;
};
/* Considers `name` when it is near enough to `wanted` to be a slip: a third of its letters, one
 * of two or three. A name that begins with `wanted`, or the other way round, counts as near. */
void suggest_consider(struct suggestion *suggestion, struct str wanted, struct str name);

enum { SUGGEST_HINT_BYTES = SUGGEST_MAX_BYTES + 24 };
/* The end of the sentence that refuses a name: `; did you mean "dims"?`, or nothing. Returns:
 * `out`. */
const char *suggest_hint(const struct suggestion *suggestion, char out[SUGGEST_HINT_BYTES]);

#endif
