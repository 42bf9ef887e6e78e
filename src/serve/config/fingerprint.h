/* Detects changed, added or removed files of a model without reading their contents. */
#ifndef SLUICE_SERVE_CONFIG_FINGERPRINT_H
#define SLUICE_SERVE_CONFIG_FINGERPRINT_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/compiler.h"
#include "core/base/status.h"

enum { FINGERPRINT_MAX_ENTRIES = 100000 };

/* Hashes the names, sizes, times and inodes of the file `path`, or of everything in the directory
 * `path`; hidden names are skipped, nothing is opened but directories. Links to files are followed.
 * Links to directories are followed directly in `path` (a version may be a link), and below where
 * they lead into the same version (`..data` of a mounted volume). A directory is walked once for
 * each entry of `path`, those of /proc and /sys never. `*cancelled` (NULL: never) ends the walk.
 * Returns: ST_OK: *out is the hash, 0 when `path` does not exist; ST_BAD_MODEL for more than
 * FINGERPRINT_MAX_ENTRIES files and directories: *out is a hash of the path then, the same each
 * time; ST_NOT_READY: cancelled; ST_NO_MEMORY. Thread: any; it may block. */
enum status fingerprint_take(const char *path, const atomic_bool *cancelled, uint64_t *out,
                             struct error *err) SLUICE_MUST_USE;

/* Hears of the entries of a directory. */
struct fingerprint_entries {
    void (*on_entry)(void *user, const char *name, uint64_t hash);
    void *user;
};
/* As fingerprint_take; `entries` hears of each name in the directory `path` with a hash of what is
 * there, 0 for what does not exist. */
enum status fingerprint_take_entries(const char *path, const struct fingerprint_entries *entries,
                                     const atomic_bool *cancelled, uint64_t *out,
                                     struct error *err) SLUICE_MUST_USE;

#endif
