/* Detects changed, added or removed files of a model without reading their contents. */
#ifndef SLUICE_SERVE_CONFIG_FINGERPRINT_H
#define SLUICE_SERVE_CONFIG_FINGERPRINT_H

#include <stdint.h>

/* A hash of the names, sizes, times and inodes of the file `path`, or of everything in the
 * directory `path`; links are followed, hidden names are skipped.
 * Returns: 0 when `path` does not exist. Thread: any; it may block. */
uint64_t fingerprint_of(const char *path);

#endif
