/* What a pool's profile makes of each endpoint, as a table for people. */
#ifndef SLUICE_PICK_SESSION_EXPLAIN_PROFILE_H
#define SLUICE_PICK_SESSION_EXPLAIN_PROFILE_H

#include "core/base/buf.h"
#include "pick/pool/explain.h"

/* Appends: what was seen of each candidate, the filter that took it away or the score of each
 * scorer, and the sum. */
void pick_explain_profile(const struct pool_snapshot *snapshot,
                          const struct pool_explanation *explanation, struct buf *out);

#endif
