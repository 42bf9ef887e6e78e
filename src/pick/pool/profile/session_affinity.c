/* Hashes of sessions and endpoints. */
#include "pick/pool/profile/session_affinity.h"
#include "pick/pool/profile/vectors.h"

static const uint64_t FNV_BASIS = UINT64_C(14695981039346656037);
static const uint64_t FNV_PRIME = UINT64_C(1099511628211);

static uint64_t hash_text(struct str text) {
    uint64_t hash = FNV_BASIS;
    for (size_t i = 0; i < text.len; i++) {
        hash = (hash ^ (unsigned char)text.ptr[i]) * FNV_PRIME;
    }
    return hash;
}

/* A number from 0 to 2^24 - 1 for each candidate, of which the highest wins. All bits of the one
 * that is mixed change with each bit of the other (Wellons 2018). */
VECTORS static void draw(const struct choice *choice, uint32_t session) {
    const uint32_t *address = choice->columns->address;
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        uint32_t x = address[i] ^ session;
        x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
        x = (x ^ x >> 15) * UINT32_C(0x846ca68b);
        choice->scratch[i] = (float)(int32_t)((x ^ x >> 16) >> 8);
    }
}

/* Between those with the same number, which are always the same ones where the hashes of their
 * addresses are. */
static uint32_t draw_again(const struct choice *choice, uint64_t session,
                           const struct choice_best *best) {
    uint64_t highest = 0;
    uint32_t place = 0;
    for (uint32_t nth = 0; nth < best->n; nth++) {
        uint32_t i = choice_best_place(best, choice->scratch, nth);
        struct dice dice = {session ^ endpoint_address_hash(&choice_member(choice, i)->address)};
        uint64_t hash = dice_roll(&dice);
        if (nth == 0 || hash > highest) {
            highest = hash;
            place = i;
        }
    }
    return place;
}

uint32_t session_affinity_place(const struct choice *choice) {
    uint64_t session = hash_text(choice->session);
    draw(choice, (uint32_t)(session ^ session >> 32));
    struct choice_best best = choice_best_of(choice, choice->scratch);
    return best.n == 1 ? choice_best_place(&best, choice->scratch, 0)
                       : draw_again(choice, session, &best);
}
