/* The descriptors of proto/, built into the program: a FileDescriptorSet (cmake/proto.cmake). */
#ifndef SLUICE_SERVE_DESCRIPTORS_H
#define SLUICE_SERVE_DESCRIPTORS_H

#include "base/str.h"

struct str descriptors_all(void);

#endif
