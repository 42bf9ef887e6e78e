/* The file that is written when the server is ready, with its addresses, one URL a line
 * ("http://127.0.0.1:8000", "http+unix:/path"); MIP's as `--mip` takes them, with their models
 * ("tcp://127.0.0.1:9000=digits"). */
#ifndef SLUICE_CORE_OS_READY_FILE_H
#define SLUICE_CORE_OS_READY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* A ready file, and whether this process wrote it. */
struct ready_file {
    const char *path; /* NULL: there is none */
    bool written;     /* as the following file */
    uint64_t device, inode;
    int64_t modified_ns;
};

/* Writes the file atomically: as PATH.new, then renamed. An existing PATH that is no regular file
 * (a device, a folder) is left alone. Returns: ST_IO. */
enum status ready_file_write(struct ready_file *file, const char *const *urls, size_t n,
                             struct error *err) SLUICE_MUST_USE;
/* Removes the file that a server left that crashed; only a regular file. */
void ready_file_remove_stale(const char *path);
/* Removes the file if it is still the one that was written: a server that was started in place of
 * this one may have written its own. */
void ready_file_remove(struct ready_file *file);

#endif
