/* The messages of inference.GRPCInferenceService, for what prints them as JSON: made from
 * proto/ by cmake/proto.cmake. */
#ifndef SLUICE_CODEC_KSERVE_DESCRIPTORS_H
#define SLUICE_CODEC_KSERVE_DESCRIPTORS_H

#include "core/base/str.h"

/* Returns: a FileDescriptorSet. */
struct str v2_descriptors(void);

#endif
