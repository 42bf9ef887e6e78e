/* The small JSON bodies of KServe v2: health as the server writes it, errors and metadata as the
 * client reads them. The server's metadata is codec/kserve/grpc/v2_grpc.h. */
#ifndef SLUICE_CODEC_KSERVE_METADATA_H
#define SLUICE_CODEC_KSERVE_METADATA_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"
#include "core/tensor/tensor.h"

/* ---- health ---------------------------------------------------------------------------------- */

/* {"live":…} */
void v2_live_print(struct buf *out, bool live);
/* {"live":…,"ready":…}, both with the same value: the protocol's text names the member "live",
 * its servers name it "ready"; clients of either work. */
void v2_ready_print(struct buf *out, bool ready);
/* {"name":…,"ready":…} */
void v2_model_ready_print(struct buf *out, struct str name, bool ready);

/* ---- errors and metadata --------------------------------------------------------------------- */

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
