/* How a pool's profile judges each endpoint for a request, step by step, for people who ask why.
 * Nothing is picked and nothing counted. */
#ifndef SLUICE_PICK_POOL_EXPLAIN_H
#define SLUICE_PICK_POOL_EXPLAIN_H

#include "pick/pool/pool.h"
#include "pick/pool/profile/profile.h"

/* Of an endpoint that is ready and named by the request. */
struct pool_endpoint_explanation {
    uint32_t member;
    uint32_t known; /* and so on: as in candidate_columns, as all plugins saw it */
    float in_flight, n_waiting, n_running, kv_cache_used;
    float score;                           /* the sum of all */
    const struct profile_step *removed_by; /* the filter that took it away, or NULL */
    float *scores;                         /* of each scorer, from 0 to 1, without weights */
};

struct pool_explanation {
    const struct profile *profile;           /* NULL: the fewest requests in flight is picked */
    struct pool_endpoint_explanation *items; /* in the order of their members; all in the arena.
                                                Where requests
                                      can wait, without those that are full, if others are left */
    size_t n;
    bool full; /* all that may take the request are */
};

/* As pool_pick would do it with the pool that the reader has looked at last: members are those of
 * that snapshot, which the caller has in its hand. Returns: ST_NO_MEMORY.
 * Thread: the reader's; the result is good until it looks or picks again. */
enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
