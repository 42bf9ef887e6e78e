/* The requests of the model repository extension, as JSON and as protobuf. The repository checks
 * names. */
#ifndef SLUICE_CODEC_KSERVE_REPOSITORY_H
#define SLUICE_CODEC_KSERVE_REPOSITORY_H

#include "codec/kserve/request.h"

/* A parameter "file:VERSION/NAME". */
struct v2_repository_file {
    struct str path; /* "VERSION/NAME" */
    struct str data;
};

struct v2_repository_request {
    bool ready;        /* in an index: list only models that are ready */
    struct str model;  /* in gRPC requests */
    struct str config; /* in a load; ptr NULL: none */
    uint64_t version;  /* in a load and an unload: that version alone; 0: the model */
    const struct v2_repository_file *files;
    size_t n_files;
    bool unload_dependents; /* in an unload of an ensemble: its members, too */
};

/* Decodes the body of an index: empty, or {"ready": BOOL}. Returns: ST_BAD_JSON, ST_BAD_FIELD
 * for another type.
 * Clause: model repository extension, "Index". */
enum status v2_repository_index_decode(struct arena *arena, struct str body,
                                       const struct json_limits *limits,
                                       struct v2_repository_request *out,
                                       struct error *err) SLUICE_MUST_USE;
/* Decodes the body of a load: empty, or {"parameters": {…}} with `config`, JSON as text or as
 * an object, and "file:…", base64; ours: `version`, a number or its text, without the others;
 * parameters that are null count as absent. Returns: ST_BAD_JSON;
 * ST_BAD_FIELD for parameters that are not text or have other names, where the reference server
 * has 500, and for invalid base64. Owns: files and the text of an object are in `arena`.
 * Clause: model repository extension, "Load". */
enum status v2_repository_load_decode(struct arena *arena, struct str body,
                                      const struct json_limits *limits,
                                      struct v2_repository_request *out,
                                      struct error *err) SLUICE_MUST_USE;
/* Decodes the body of an unload: empty, or {"parameters": {"unload_dependents": BOOL}}; ours:
 * `version`, as in a load.
 * Clause: model repository extension, "Unload". */
enum status v2_repository_unload_decode(struct arena *arena, struct str body,
                                        const struct json_limits *limits,
                                        struct v2_repository_request *out,
                                        struct error *err) SLUICE_MUST_USE;

/* Decodes the body of a load of SageMaker's multi-model endpoints: {"model_name": TEXT, "url":
 * TEXT}; other members are ignored. Returns: ST_BAD_JSON, ST_BAD_FIELD. Owns: views of `body` or in
 * `arena`. */
enum status multi_model_load_decode(struct arena *arena, struct str body,
                                    const struct json_limits *limits, struct str *name,
                                    struct str *url, struct error *err) SLUICE_MUST_USE;

/* RepositoryIndexRequest, RepositoryModelLoadRequest and RepositoryModelUnloadRequest. Returns:
 * ST_UNSUPPORTED if the request names a repository; ST_BAD_FIELD for other parameters or types.
 * Owns: views of `message`. */
enum status v2_grpc_repository_index_decode(struct str message, struct v2_repository_request *out,
                                            struct error *err) SLUICE_MUST_USE;
enum status v2_grpc_repository_load_decode(struct arena *arena, struct str message,
                                           struct v2_repository_request *out,
                                           struct error *err) SLUICE_MUST_USE;
enum status v2_grpc_repository_unload_decode(struct str message, struct v2_repository_request *out,
                                             struct error *err) SLUICE_MUST_USE;

/* A model configuration as JSON (proto3's mapping of ModelConfig) in a load, converted to the form
 * that the parser of config.pbtxt reads: maps become lists of `key` and `value`, and 64-bit numbers
 * written as text become numbers. The parser checks the rest. Returns: ST_BAD_CONFIG if `json` is
 * not a JSON object, or nested too deep. Owns: *out is in `arena`. */
enum status model_config_json_rewrite(struct arena *arena, struct str json, struct str *out,
                                      struct error *err) SLUICE_MUST_USE;

#endif
