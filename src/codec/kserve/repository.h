/* The requests of the model repository extension, as JSON and as protobuf. What a name may be is
 * not looked at here. */
#ifndef SLUICE_CODEC_KSERVE_REPOSITORY_H
#define SLUICE_CODEC_KSERVE_REPOSITORY_H

#include "codec/kserve/request.h"

/* A parameter "file:VERSION/NAME". */
struct v2_repository_file {
    struct str path; /* "VERSION/NAME" */
    struct str data;
};

struct v2_repository_request {
    bool ready;        /* of an index: only what is ready */
    struct str model;  /* gRPC */
    struct str config; /* of a load; ptr NULL: none */
    const struct v2_repository_file *files;
    size_t n_files;
};

/* The body of an index: empty, or {"ready": BOOL}. Returns: also ST_BAD_FIELD for another type.
 * Clause: model repository extension, "Index". */
enum status v2_repository_index_decode(struct arena *arena, struct str body,
                                       const struct json_limits *limits,
                                       struct v2_repository_request *out, struct error *err)
    __attribute__((warn_unused_result));
/* The body of a load: empty, or {"parameters": {…}} with `config`, JSON as text, and "file:…",
 * base64. Returns: also ST_INTERNAL for parameters that are no text or have other names, as the
 * reference server has it, and ST_BAD_FIELD for what is no base64. Owns: files are in `arena`.
 * Clause: model repository extension, "Load". */
enum status v2_repository_load_decode(struct arena *arena, struct str body,
                                      const struct json_limits *limits,
                                      struct v2_repository_request *out, struct error *err)
    __attribute__((warn_unused_result));
/* The body of an unload: empty, or {"parameters": {"unload_dependents": BOOL}}, which has no
 * effect: no model here is loaded for another. Clause: model repository extension, "Unload". */
enum status v2_repository_unload_decode(struct arena *arena, struct str body,
                                        const struct json_limits *limits, struct error *err)
    __attribute__((warn_unused_result));

/* RepositoryIndexRequest, RepositoryModelLoadRequest and RepositoryModelUnloadRequest. Views of the
 * message. Returns: ST_UNSUPPORTED where a repository is named; ST_BAD_FIELD for other parameters
 * or kinds. */
enum status v2_grpc_repository_index_decode(struct str message, struct v2_repository_request *out,
                                            struct error *err) __attribute__((warn_unused_result));
enum status v2_grpc_repository_load_decode(struct arena *arena, struct str message,
                                           struct v2_repository_request *out, struct error *err)
    __attribute__((warn_unused_result));
enum status v2_grpc_repository_unload_decode(struct str message, struct v2_repository_request *out,
                                             struct error *err) __attribute__((warn_unused_result));

#endif
