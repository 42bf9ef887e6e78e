/* Hashes of sessions and endpoints. */
#include "pool/session_affinity.h"

static const uint64_t FNV_BASIS = UINT64_C(14695981039346656037);
static const uint64_t FNV_PRIME = UINT64_C(1099511628211);

static uint64_t hash_text(struct str text) {
    uint64_t hash = FNV_BASIS;
    for (size_t i = 0; i < text.len; i++) {
        hash = (hash ^ (unsigned char)text.ptr[i]) * FNV_PRIME;
    }
    return hash;
}

uint32_t session_affinity_place(const struct choice *choice) {
    uint64_t session = hash_text(choice->session), highest = 0;
    uint32_t place = 0;
    for (uint32_t i = 0; i < choice->n; i++) {
        const struct pool_member *member = choice_member(choice, i);
        struct dice dice = {session ^ endpoint_address_hash(&member->address)};
        uint64_t hash = dice_roll(&dice);
        if (i == 0 || hash > highest) {
            highest = hash;
            place = i;
        }
    }
    return place;
}
