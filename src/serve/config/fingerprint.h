/* What files look like from outside: whether any of them was changed, added or taken away since
 * somebody looked last can be told without reading them. */
#ifndef SLUICE_SERVE_CONFIG_FINGERPRINT_H
#define SLUICE_SERVE_CONFIG_FINGERPRINT_H

#include <stdint.h>

/* A hash over the names, sizes, times and inodes of the file `path`, or of everything in the
 * directory `path`; links are followed. Hidden names don't count. Returns: 0 when there is nothing
 * at `path`.
 * Thread: any; it may block. */
uint64_t fingerprint_of(const char *path);

#endif
