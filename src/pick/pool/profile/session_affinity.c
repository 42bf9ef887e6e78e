/* Hashes of sessions and endpoints. */
#include "pick/pool/profile/session_affinity.h"
#include "pick/pool/profile/simd_targets.h"

static const uint64_t FNV_BASIS = UINT64_C(14695981039346656037);
static const uint64_t FNV_PRIME = UINT64_C(1099511628211);

static uint64_t fnv_hash(struct str text) {
    uint64_t hash = FNV_BASIS;
    for (size_t i = 0; i < text.len; i++) {
        hash = (hash ^ (unsigned char)text.ptr[i]) * FNV_PRIME;
    }
    return hash;
}

/* A number from 0 to 2^24 - 1 for each candidate, of which the highest wins. All bits of the one
 * that is mixed change with each bit of the other (Wellons 2018). */
SIMD_TARGETS static void hash_candidates(const struct candidate_set *candidates, uint32_t session) {
    const uint32_t *address = candidates->columns->address;
#pragma omp simd
    for (uint32_t i = 0; i < candidates->n; i++) {
        uint32_t x = address[i] ^ session;
        x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
        x = (x ^ x >> 15) * UINT32_C(0x846ca68b);
        candidates->scratch[i] = (float)(int32_t)((x ^ x >> 16) >> 8);
    }
}

/* Between those with the same number, which are always the same ones where the hashes of their
 * addresses are. */
static uint32_t break_tie(const struct candidate_set *candidates, uint64_t session,
                          const struct column_max *best) {
    uint64_t highest = 0;
    uint32_t pos = 0;
    for (uint32_t nth = 0; nth < best->n; nth++) {
        uint32_t i = column_max_index(best, candidates->scratch, nth);
        struct prng prng = {session ^
                            endpoint_address_hash(&candidate_set_member(candidates, i)->address)};
        uint64_t hash = prng_next(&prng);
        if (nth == 0 || hash > highest) {
            highest = hash;
            pos = i;
        }
    }
    return pos;
}

uint32_t session_affinity_index(const struct candidate_set *candidates) {
    uint64_t session = fnv_hash(candidates->session);
    hash_candidates(candidates, (uint32_t)(session ^ session >> 32));
    struct column_max best = column_max_find(candidates, candidates->scratch);
    return best.n == 1 ? column_max_index(&best, candidates->scratch, 0)
                       : break_tie(candidates, session, &best);
}
