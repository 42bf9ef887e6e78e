/* Tables of the legal transitions of a state machine: for each state the set of those that may
 * follow it. The one function that changes the state asserts transition_is_legal. */
#ifndef SLUICE_CORE_BASE_TRANSITION_H
#define SLUICE_CORE_BASE_TRANSITION_H

#include <stdbool.h>
#include <stdint.h>

/* The set of one state, an enumerator from 0 to 31; `|` unites sets. */
#define STATE_SET(state) (UINT32_C(1) << (state))

/* Returns: whether `to` is in the set next[from]. */
static inline bool transition_is_legal(const uint32_t *next, unsigned from, unsigned to) {
    return (next[from] >> to & 1) != 0;
}

#endif
