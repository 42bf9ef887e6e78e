/* Finds the known name that a mistyped one is nearest to, for "did you mean". Used for flags,
 * subcommands, a model's inputs and its settings. */
#ifndef SLUICE_CORE_BASE_SUGGEST_H
#define SLUICE_CORE_BASE_SUGGEST_H

#include <stddef.h>

#include "core/base/str.h"

enum { SUGGEST_MAX_BYTES = 63 };
/* Returns: the number of letters to insert, remove, replace or swap with their neighbour that turns
 * `a` into `b`. Texts over SUGGEST_MAX_BYTES are not compared: SIZE_MAX. */
size_t suggest_distance(struct str a, struct str b);

/* The nearest name so far, a view. Start with zeros. */
struct suggestion {
    struct str best; /* ptr NULL: none was near enough */
    size_t distance;
};
/* Considers `name` when its distance to `wanted` is at most a third of the letters (one, for two or
 * three letters). A name that begins with `wanted`, or the other way round, is near. */
void suggest_consider(struct suggestion *suggestion, struct str wanted, struct str name);

enum { SUGGEST_HINT_BYTES = SUGGEST_MAX_BYTES + 24 };
/* The last part of an error text about an unknown name: `; did you mean "dims"?`, or nothing.
 * Returns: `out`. */
const char *suggest_hint(const struct suggestion *suggestion, char out[SUGGEST_HINT_BYTES]);

#endif
