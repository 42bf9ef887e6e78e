/* Unpacks a packed environment into a directory: a tar file, compressed or not, or a zip file. What
 * is in it can be anything: nothing is written outside of the directory, and no link leads out of
 * it. */
#ifndef SLUICE_PYTHON_UNPACK_H
#define SLUICE_PYTHON_UNPACK_H

#include <stdint.h>

#include "sluice/backend.h"

enum { UNPACK_MAX_ENTRIES = 1 << 20 };

/* `directory`: an open descriptor of an empty one. `max_bytes`: of all files together. Files,
 * directories, symbolic and hard links; compressed by gzip, bzip2, xz or zstd. Modes are those of
 * the archive without those of other users to become the owner, and what the owner needs; times are
 * kept. Returns: SLUICE_INVALID_ARGUMENT with a text that names the file and the entry;
 * SLUICE_INTERNAL when it cannot be written. */
sluice_status unpack_archive(const char *path, int directory, uint64_t max_bytes,
                             sluice_error *error);

#endif
