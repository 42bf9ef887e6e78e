/* A server's metadata (GET /v2), as a client reads it: the other half of
 * v2_server_metadata_print. */
#ifndef SLUICE_CODEC_KSERVE_SERVER_METADATA_DECODE_H
#define SLUICE_CODEC_KSERVE_SERVER_METADATA_DECODE_H

#include "codec/kserve/request.h"

struct v2_server_metadata {
    struct str name;
    struct str version; /* empty: not told */
    const struct str *extensions;
    size_t n_extensions;
};

/* Unknown members are passed over. Returns: BAD_JSON, BAD_FIELD with the JSON path. Owns: in
 * `arena`.
 * Clause: OIP, server metadata. */
enum status v2_server_metadata_decode(struct arena *arena, struct str body,
                                      const struct json_limits *limits,
                                      struct v2_server_metadata *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
