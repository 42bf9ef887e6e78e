/* A pool view: a reader's own copy of the columns that a pick reads: which members are eligible,
 * and their load, corrected by the picker's own requests (pick/pool/endpoint/load.h). It follows
 * the snapshot's list of changes, so an update takes time by the number of changes, and a pick from
 * the whole pool runs on the view itself.
 *
 * Positions: ready members come first, then those whose window is used up, then avoided ones, then
 * those that are not eligible. A pick is from the first of these groups that has members.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_VIEW_H
#define SLUICE_PICK_POOL_VIEW_H

#include "pick/pool/profile/score_cache.h"

/* Zeroed memory is an empty view. */
struct pool_view {
    uint64_t generation;  /* of its snapshot; 0: none */
    uint32_t n_ready;     /* members that can be picked */
    uint32_t n_unavoided; /* n_ready plus those whose window is used up */
    uint32_t n_eligible; /* n_unavoided plus avoided ones, which are picked only where no others are
                            ready */
    uint64_t n_changes;  /* changes of the list that were applied */
    uint64_t read_ns;    /* when all members were last read */
    uint64_t until_ns;   /* when the first load report expires */
    /* Sums, kept as members are read. */
    double ready_in_flight; /* column in_flight of the first n_ready */
    uint32_t n_known;       /* members that report their waiting requests */
    bool is_mixed;          /* some do, and others do not: the following is kept */
    double known_running;   /* of our requests at those that do, less those that wait */
    float usual_running;    /* the mean of that, when it was last kept */
    uint32_t adapters;      /* union of the members' LoRA adapters since all were last read */
    uint32_t cap;           /* capacity of each column */
    void *memory;           /* of all columns */
    struct candidate_columns columns;
    uint32_t *index_of; /* by member: its position */
    /* Scratch memory for a pick: the filtered candidates, and scores. */
    struct candidate_columns filtered_columns;
    float *score, *scratch;
    uint32_t *order;                /* 2 * cap */
    struct score_cache score_cache; /* of the ready members */
};

void pool_view_fini(struct pool_view *view);

/* Brings it up to date with the snapshot. Returns: ST_NO_MEMORY. */
enum status pool_view_update(struct pool_view *view, const struct pool_snapshot *snapshot,
                             uint64_t now_ns, struct error *err) SLUICE_MUST_USE;

#endif
