/* The client's half of metadata.h: errors and metadata decoded from JSON bodies. */
#ifndef SLUICE_CODEC_KSERVE_METADATA_DECODE_H
#define SLUICE_CODEC_KSERVE_METADATA_DECODE_H

#include "codec/kserve/request.h"

/* Returns: the text of {"error":"…"}; ptr NULL for any other body. Owns: in `arena`. */
struct str v2_error_decode(struct arena *arena, struct str body);

/* Decodes a model's metadata (GET /v2/models/M) as the specification of its newest version.
 * `version` is the last in the list (0: none, or not a number); max_batch_size is not
 * transmitted and 0; no input is optional. Dimensions are -1 or >= 0. Returns: BAD_JSON,
 * BAD_FIELD with the JSON path. Owns: in `arena`. */
enum status v2_model_metadata_decode(struct arena *arena, struct str body,
                                     const struct json_limits *limits, struct model_spec *out,
                                     struct error *err) SLUICE_MUST_USE;

struct v2_server_metadata {
    struct str name;
    struct str version; /* empty: absent */
    const struct str *extensions;
    size_t n_extensions;
};

/* Decodes a server's metadata (GET /v2). Unknown members are ignored. Returns: BAD_JSON,
 * BAD_FIELD with the JSON path. Owns: in `arena`.
 * Clause: OIP, server metadata. */
enum status v2_server_metadata_decode(struct arena *arena, struct str body,
                                      const struct json_limits *limits,
                                      struct v2_server_metadata *out,
                                      struct error *err) SLUICE_MUST_USE;

#endif
