/* Which endpoint a session belongs to, without anything being kept of it: a session's value and an
 * endpoint's address are hashed together, and the highest hash wins (Thaler and Ravishankar 1998).
 * All pickers agree on it, and when an endpoint goes only its own sessions move. */
#ifndef SLUICE_PICK_POOL_PROFILE_SESSION_AFFINITY_H
#define SLUICE_PICK_POOL_PROFILE_SESSION_AFFINITY_H

#include "pick/pool/profile/plugin.h"

/* The place of its candidate; there is one at least, and choice->session is not empty. */
uint32_t session_affinity_index(const struct candidate_set *candidates);

static inline bool session_affinity_applies(const struct candidate_set *candidates) {
    return candidates->session.len > 0 && candidates->n > 0;
}

#endif
