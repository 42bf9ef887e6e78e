/* The small JSON bodies of KServe v2: health. Metadata is codec/kserve/grpc/v2_grpc.h. */
#ifndef SLUICE_CODEC_KSERVE_METADATA_H
#define SLUICE_CODEC_KSERVE_METADATA_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* {"live":…} */
void v2_live_print(struct buf *out, bool live);
/* {"live":…,"ready":…}, both with the same value: the protocol's text names the member "live",
 * its servers name it "ready"; clients of either work. */
void v2_ready_print(struct buf *out, bool ready);
/* {"name":…,"ready":…} */
void v2_model_ready_print(struct buf *out, struct str name, bool ready);

#endif
