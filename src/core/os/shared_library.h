/* Shared libraries (.so) before they are loaded. */
#ifndef SLUICE_CORE_OS_SHARED_LIBRARY_H
#define SLUICE_CORE_OS_SHARED_LIBRARY_H

#include "core/base/status.h"

/* Checks that the file of a library is whole. dlopen maps it without asking, and the process gets
 * SIGBUS for the part that is missing. A file that is no library is left to dlopen, which says
 * so. Returns: ST_BAD_MODEL, with the path and both sizes; ST_OK. Thread: any that may block. */
enum status shared_library_check(const char *path, struct error *err) SLUICE_MUST_USE;

#endif
