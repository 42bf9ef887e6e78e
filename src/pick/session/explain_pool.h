/* Which of several pools a described request would be for, and why; then what that one would pick
 * (explain.h). Nothing is picked and nothing counted.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_SESSION_EXPLAIN_POOL_H
#define SLUICE_PICK_SESSION_EXPLAIN_POOL_H

#include "pick/pool/set.h"
#include "pick/session/explain.h"

/* Appends the text. Returns: ST_NO_MEMORY, or what the request is refused with (the text says so
 * too). */
enum status pick_explain_pools(struct pool_set_reader *pools,
                               const struct pick_described_request *described, struct buf *out,
                               struct error *err) __attribute__((warn_unused_result));

#endif
