/* The FileDescriptorSet of the endpoint picker's services, compiled in from proto/
 * (cmake/proto.cmake). */
#ifndef SLUICE_PICK_EXT_PROC_DESCRIPTORS_H
#define SLUICE_PICK_EXT_PROC_DESCRIPTORS_H

#include "core/base/str.h"

struct str pick_descriptors(void);

#endif
