/* Trace files: PATH, a JSON array after each write, and PATH.0, PATH.1 and so on, each written
 * once. Failed writes are logged and counted.
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
    int fd;              /* of PATH; -1: not open yet */
    off_t end;           /* offset of the next trace, at the closing bracket */
    uint64_t next_index; /* of the next PATH.N */
    bool failing;        /* the last write failed: logged already */
};

/* `path` must outlive it. */
void trace_file_init(struct trace_file *file, const char *path);
/* Checks whether files can be created there. Returns: ST_BAD_CONFIG. */
enum status trace_file_check(const char *path, struct error *err) SLUICE_MUST_USE;
/* Appends `n` traces, JSON objects separated by commas. */
void trace_file_append(struct trace_file *file, struct str objects, uint64_t n);
/* Writes them into the next file PATH.N. */
void trace_file_write_next(struct trace_file *file, struct str objects, uint64_t n);
void trace_file_close(struct trace_file *file);

#endif
