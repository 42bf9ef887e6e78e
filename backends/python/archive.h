/* Unpacks a packed environment: a tar file, compressed by gzip or not, into a directory. What is in
 * it can be anything: nothing is written outside of the directory, and no link leads out of it. */
#ifndef SLUICE_PYTHON_ARCHIVE_H
#define SLUICE_PYTHON_ARCHIVE_H

#include <stdint.h>

#include "sluice/backend.h"

enum { ARCHIVE_MAX_ENTRIES = 1 << 20 };

/* `directory`: an open descriptor of an empty one. `max_bytes`: of all files together. Files,
 * directories, symbolic and hard links, in the formats of ustar, GNU and pax. Modes are those of
 * the archive without those of other users to become the owner, and what the owner needs; times are
 * kept. Returns: SLUICE_INVALID_ARGUMENT with a text that names the file and the entry;
 * SLUICE_INTERNAL when it cannot be read or written. */
sluice_status archive_unpack(const char *path, int directory, uint64_t max_bytes,
                             sluice_error *error);

#endif
