/* A reader's own copy of what a choice looks at: which members may be picked, and of each what is
 * known of its load, corrected by this picker's own requests (pick/pool/endpoint/load.h). It
 * follows the snapshot's list of changes, so that bringing it up to date takes as long as there
 * were changes since, and a choice among all is made on the view itself.
 *
 * Places: those who may be picked stand first, in front of those who are avoided, which are in
 * front of those who may not be picked.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_VIEW_H
#define SLUICE_PICK_POOL_VIEW_H

#include "pick/pool/profile/score_cache.h"

/* Zeroed memory is the view of nothing. */
struct pool_view {
    uint64_t generation; /* of the snapshot that it is of; 0: of none */
    uint32_t n_ready;    /* members that may be picked */
    uint32_t n_eligible; /* with those who are avoided: only where there are no others */
    uint64_t n_changes;  /* that it has followed */
    uint64_t read_ns;    /* when all were looked at last */
    uint64_t until_ns;   /* nothing that is known is too old before */
    uint32_t adapters;   /* what any of them may have: all that was seen since all were looked at */
    uint32_t cap;        /* places in each column */
    void *memory;        /* of all columns */
    struct candidate_columns columns;
    uint32_t *index_of; /* of each member */
    /* For a choice to work with: who is left, and numbers. */
    struct candidate_columns filtered_columns;
    float *score, *scratch;
    struct score_cache score_cache; /* of those who may be picked */
};

void pool_view_fini(struct pool_view *view);

/* Brings it up to date. Returns: ST_NO_MEMORY. */
enum status pool_view_update(struct pool_view *view, const struct pool_snapshot *snapshot,
                             uint64_t now_ns, struct error *err)
    __attribute__((warn_unused_result));

#endif
