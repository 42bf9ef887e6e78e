/* Which of the known names did a person mean who wrote this one? Used for flags, subcommands, a
 * model's inputs and its settings. */
#ifndef SLUICE_BASE_NEAREST_H
#define SLUICE_BASE_NEAREST_H

#include <stddef.h>

/* How many letters must be inserted, removed, replaced or swapped with their neighbour to make `b`
 * of `a`. Texts over 63 characters are not compared: SIZE_MAX. */
size_t nearest_distance(const char *a, const char *b);

/* Keeps the best of the names shown to it. Start with best NULL. */
struct nearest {
    const char *best;
    size_t distance;
};
/* Considers `name` when it is near enough to `wanted` to be a slip: a third of its letters, one
 * of two or three. A name that begins with `wanted`, or the other way round, counts as near. */
void nearest_consider(struct nearest *nearest, const char *wanted, const char *name);

#endif
