/* Which endpoint each of the requests of one window is sent to, so that equal prompts come
 * together: upstream's burst-prefix-cache-producer.
 *
 * Requests with the same prompt are a unit; so is one that shares its beginning with others, where
 * `min_blocks` says how much counts. Units are placed one after the other, those of several
 * requests first, and long ones first: at the endpoint that has most of the unit's beginning by the
 * units that were placed before, as long as it has less than its share of the window; or else where
 * the fewest requests were placed. What does not fit there (`max_per_replica`) goes to the next
 * such endpoint.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PREFIX_BURST_ASSIGN_H
#define SLUICE_PICK_POOL_PREFIX_BURST_ASSIGN_H

#include <stdbool.h>
#include <stdint.h>

#define BURST_NOWHERE UINT32_MAX

struct burst_entry {
    bool is_present;        /* otherwise it is ignored */
    uint32_t n_blocks;      /* of the prompt; 0: it has none */
    const uint64_t *hashes; /* of its blocks; each includes those before it */
    uint32_t target;        /* out: index of the endpoint; BURST_NOWHERE: any */
};

struct burst_rules {
    uint64_t window_ns;
    uint32_t max_per_replica; /* requests of a unit at one endpoint; 0: no limit */
    uint32_t min_blocks;      /* 0: only equal prompts come together */
    uint32_t max_batch;       /* requests of a window */
    bool by_tokens;           /* an endpoint's share counts blocks that it has to compute, not
                                 requests */
};

/* `n_running`: of each endpoint, the requests that run there: of two with the same load the one
 * with fewer is taken, then the one with the lower index. Sets the targets; when out of memory none
 * has one. */
void burst_assign(struct burst_entry *entries, uint32_t n, const float *n_running,
                  uint32_t n_replicas, const struct burst_rules *rules);

#endif
