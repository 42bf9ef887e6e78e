/* What the front ends of the model repository extension have in common: the index, as each protocol
 * writes it, and a request for the repository. */
#ifndef SLUICE_SERVE_FRONTEND_REPOSITORY_INDEX_H
#define SLUICE_SERVE_FRONTEND_REPOSITORY_INDEX_H

#include "codec/kserve/repository.h"
#include "core/base/buf.h"
#include "serve/repository/repository.h"

/* The array of models and versions; with `ready` only those that are. Thread: a worker's.
 * Clause: model repository extension, "Index". */
void repository_index_print_json(struct repository *repository, bool ready, struct buf *out);
/* The same as a RepositoryIndexResponse. */
void repository_index_encode(struct repository *repository, bool ready, struct buf *out);

/* What is asked for with a load, for the change. Returns: ST_NO_MEMORY. Owns: in `arena`. */
enum status repository_change_from_request(struct arena *arena,
                                           const struct v2_repository_request *request,
                                           struct repository_change *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
