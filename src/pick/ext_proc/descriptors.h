/* The descriptors of the endpoint picker's services, built into the program from proto/: a
 * FileDescriptorSet (cmake/proto.cmake). */
#ifndef SLUICE_PICK_EXT_PROC_DESCRIPTORS_H
#define SLUICE_PICK_EXT_PROC_DESCRIPTORS_H

#include "core/base/str.h"

struct str pick_descriptors(void);

#endif
