/* What the server tells about itself and its models, as messages of inference.GRPCInferenceService:
 * gRPC sends them, HTTP prints them as JSON by their descriptors (codec/kserve/grpc/v2_grpc.h).
 *
 * `version` with ptr NULL: none is named. Returns: as repository_find. Thread: a worker's. */
#ifndef SLUICE_SERVE_FRONTEND_DOCUMENTS_H
#define SLUICE_SERVE_FRONTEND_DOCUMENTS_H

#include "core/base/buf.h"
#include "serve/repository/repository.h"

/* Appends a ServerMetadataResponse, with the extensions that are served. Thread: any. */
void document_encode_server(const char *name, const char *version, struct buf *out);

/* Appends a ModelMetadataResponse. */
enum status document_encode_metadata(struct repository *repository, struct str model,
                                     struct str version, struct buf *out,
                                     struct error *err) SLUICE_MUST_USE;

enum { INDEX_ENTRY_BYTES = 64 }; /* of a version, about */

/* Appends a RepositoryIndexResponse: the versions that are in a repository, named at the start, or
 * served; a replaced version that is still in use is not listed. `ready`: only those that are
 * ready. Thread: any. Clause: model repository extension, "Index". */
void document_encode_index(struct repository *repository, bool ready, struct buf *out);

/* Appends a ModelConfigResponse: the configuration with what was completed from
 * the model, and with defaults. Scalars and lists are present also when empty, messages only when
 * set. Clause: model configuration extension. */
enum status document_encode_config(struct repository *repository, struct str model,
                                   struct str version, struct buf *out,
                                   struct error *err) SLUICE_MUST_USE;

/* For repository_options.print_config: a configuration as JSON, in `arena`, with a NUL after it.
 * Thread: any. */
enum status document_print_config(struct arena *arena, const struct model_config *config,
                                  struct str *out, struct error *err) SLUICE_MUST_USE;

enum { STATISTICS_MESSAGE_BYTES = 256, STATISTICS_JSON_BYTES = 1024 }; /* of a version, about */

/* Appends a ModelStatisticsResponse of a model, or of all where it is "".
 * Returns: ST_BAD_REQUEST for an unknown name too, as the reference server does. */
enum status document_encode_statistics(struct repository *repository, struct str model,
                                       struct str version, struct buf *out,
                                       struct error *err) SLUICE_MUST_USE;
/* The same of all models. Thread: any. */
void document_encode_all_statistics(struct repository *repository, struct buf *out);

#endif
