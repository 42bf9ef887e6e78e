/* The file that says that the server is ready, and where: one address a line, as a URL
 * ("http://127.0.0.1:8000", "http+unix:/path"); MIP's as `--mip` takes them, with their models
 * ("tcp://127.0.0.1:9000=digits"). */
#ifndef SLUICE_CORE_OS_READY_FILE_H
#define SLUICE_CORE_OS_READY_FILE_H

#include <stddef.h>

#include "core/base/status.h"

/* Appears whole or not at all: written beside, as PATH.new, and renamed. What is there and is no
 * regular file (a device, a folder) is left alone. Returns: ST_IO. */
enum status ready_file_write(const char *path, const char *const *urls, size_t n, struct error *err)
    __attribute__((warn_unused_result));

/* Removes it, also one that a server left behind which ended without a word; nothing but a regular
 * file. NULL: there is none. */
void ready_file_remove(const char *path);

#endif
