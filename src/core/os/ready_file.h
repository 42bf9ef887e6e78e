/* The file that is written when the server is ready, with its addresses, one URL a line
 * ("http://127.0.0.1:8000", "http+unix:/path"); MIP's as `--mip` takes them, with their models
 * ("tcp://127.0.0.1:9000=digits"). */
#ifndef SLUICE_CORE_OS_READY_FILE_H
#define SLUICE_CORE_OS_READY_FILE_H

#include <stddef.h>

#include "core/base/status.h"

/* Writes the file atomically: as PATH.new, then renamed. An existing PATH that is no regular file
 * (a device, a folder) is left alone. Returns: ST_IO. */
enum status ready_file_write(const char *path, const char *const *urls, size_t n,
                             struct error *err) SLUICE_MUST_USE;

/* Removes the file, also one left by a server that crashed; only a regular file. NULL: there is
 * none. */
void ready_file_remove(const char *path);

#endif
