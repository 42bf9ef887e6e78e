/* Trace files: PATH, a JSON array after each write, and PATH.0, PATH.1 and so on, each written
 * once. Failed writes are logged and counted. Clients may start traces, so the files have a limit.
 *
 * Thread: one at a time. */
#ifndef SLUICE_TELEMETRY_TRACE_FILE_H
#define SLUICE_TELEMETRY_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/status.h"
#include "core/base/str.h"

struct trace_file {
    const char *path;    /* NULL: disabled */
    uint64_t max_size;   /* of all files together, enforced by has_space; 0: no limit */
    uint64_t n_bytes;    /* of all files together */
    uint64_t counted_ns; /* when n_bytes was last read from the files; 0: never */
    bool full;           /* the last write would have passed the limit: logged already */
    int fd;              /* of PATH; -1: not open yet */
    off_t end;           /* offset of the next trace, at the closing bracket */
    uint64_t next_index; /* of the next PATH.N */
    bool failing;        /* the last write failed: logged already */
    bool torn;           /* ... and PATH could not be restored: logged already */
};

/* `path` must outlive it. `max_size` is a limit of all files together, in bytes; 0: no limit. */
void trace_file_init(struct trace_file *file, const char *path, uint64_t max_size);
/* Checks whether files can be created there. Returns: ST_BAD_CONFIG. */
enum status trace_file_check(const char *path, struct error *err) SLUICE_MUST_USE;
/* Appends `n` traces, JSON objects separated by commas; drops them where the limit would be passed.
 */
void trace_file_append(struct trace_file *file, struct str objects, uint64_t n);
/* Writes them into the next file PATH.N, likewise. */
void trace_file_write_next(struct trace_file *file, struct str objects, uint64_t n);
void trace_file_close(struct trace_file *file);

#endif
