/* All pools at one moment, as the pages of the operators' listener show them. */
#ifndef SLUICE_PROGRAM_PICKER_SHOWN_H
#define SLUICE_PROGRAM_PICKER_SHOWN_H

#include "core/base/metric/text.h"
#include "pick/pool/set.h"

struct pick_shown {
    const struct pool_entry *entry;
    const struct pool_snapshot *snapshot;
    struct pool_numbers numbers;
};

struct pick_shown_list {
    struct pick_shown *items;
    size_t n;
    bool named; /* series have a label with the pool's name */
};

/* Valid until the reader looks again. Out of memory there are none. Owns: the array is of
 * `arena`. */
struct pick_shown_list pick_shown_look(struct pool_set_reader *pools, struct arena *arena);
/* A pool's own name, or else that of its InferencePool; len 0: it has none. */
struct str pick_shown_name(const struct pick_shown *pool);
/* Begins the labels of a series: with the pool, where there is more than one. */
void pick_shown_label(const struct metric_text *text, const struct pick_shown_list *list,
                      const struct pick_shown *pool, struct buf *labels);

#endif
