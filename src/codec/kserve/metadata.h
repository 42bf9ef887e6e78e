/* The small JSON bodies of KServe v2: metadata, health, errors. */
#ifndef SLUICE_CODEC_KSERVE_METADATA_H
#define SLUICE_CODEC_KSERVE_METADATA_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* {"name":…,"version":…,"extensions":[…]}; `extensions` ends with NULL. */
void v2_server_metadata_print(struct buf *out, const char *name, const char *version,
                              const char *const *extensions);
/* {"name":…,"versions":[…],"platform":…,"inputs":[…],"outputs":[…]}; `versions` ascending. */
void v2_model_metadata_print(struct buf *out, const struct model_spec *model,
                             const uint64_t *versions, size_t n_versions);
/* {"live":…} */
void v2_live_print(struct buf *out, bool live);
/* {"live":…,"ready":…}, both with the same value: the protocol's text names the member "live",
 * its servers name it "ready"; clients of either work. */
void v2_ready_print(struct buf *out, bool ready);
/* {"name":…,"ready":…} */
void v2_model_ready_print(struct buf *out, struct str name, bool ready);

#endif
