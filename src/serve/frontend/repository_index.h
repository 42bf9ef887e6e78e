/* The model repository extension, as far as HTTP and gRPC share it: the index, and load requests.
 */
#ifndef SLUICE_SERVE_FRONTEND_REPOSITORY_INDEX_H
#define SLUICE_SERVE_FRONTEND_REPOSITORY_INDEX_H

#include "codec/kserve/repository.h"
#include "core/base/buf.h"
#include "serve/repository/repository.h"

enum { INDEX_ENTRY_BYTES = 64 }; /* of a version, about */

/* Appends a RepositoryIndexResponse; `ready`: only models and versions that are ready. Thread: any.
 * Clause: model repository extension, "Index". */
void repository_index_encode(struct repository *repository, bool ready, struct buf *out);

/* Copies the parameters of a load request to the change. Returns: ST_NO_MEMORY. Owns: in `arena`.
 */
enum status repository_change_from_request(struct arena *arena,
                                           const struct v2_repository_request *request,
                                           struct repository_change *out,
                                           struct error *err) SLUICE_MUST_USE;

#endif
