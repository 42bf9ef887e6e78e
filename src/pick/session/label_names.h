/* Label values of metrics that clients choose: models and fairness ids. Their number is bounded, so
 * that clients that make up names take no memory, and a name that was admitted is never removed, so
 * that they cannot displace real ones either.
 *
 * A new name is on trial until it is proven: a model by the first response of an endpoint that is a
 * success. Names on trial have a limit of their own. So while made-up names take all of that, a
 * real one is admitted with its first success; until then it counts as PICK_LABEL_OTHER.
 *
 * Thread: any. Looking up a name that is known takes no lock. */
#ifndef SLUICE_PICK_SESSION_LABEL_NAMES_H
#define SLUICE_PICK_SESSION_LABEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/str.h"

struct pick_label_names;

/* Longer names, and those that are not UTF-8, are not admitted. */
enum { PICK_LABEL_BYTES = 256 };

/* At most `most` names, `most_on_trial` of them on trial. Returns: NULL when out of memory. */
struct pick_label_names *pick_label_names_new(size_t most, size_t most_on_trial);
/* NULL is allowed. */
void pick_label_names_free(struct pick_label_names *names);

bool pick_label_names_has(const struct pick_label_names *names, struct str name);
/* Returns: whether the name may be a label's value; a new one is then on trial. */
bool pick_label_names_admit(struct pick_label_names *names, struct str name);
/* The name is real: it is no longer on trial, and admitted unless there are `most`. */
void pick_label_names_prove(struct pick_label_names *names, struct str name);

#endif
