/* The files that traces are written to: PATH, which is a JSON array after each write, and PATH.0,
 * PATH.1 and so on, each written once. What can't be written is logged and counted.
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
    const char *path;    /* NULL: there is none */
    int fd;              /* of PATH; -1: not yet open */
    off_t end;           /* where the next trace goes, over the bracket */
    uint64_t next_index; /* of the next PATH.N */
    bool failing;        /* the last write failed: it has been logged */
};

/* `path` must outlive it. */
void trace_file_init(struct trace_file *file, const char *path);
/* Can files be made there? Returns: ST_BAD_CONFIG. */
enum status trace_file_check(const char *path, struct error *err)
    __attribute__((warn_unused_result));
/* Writes `n` traces, objects with commas between them, behind those that are there. */
void trace_file_append(struct trace_file *file, struct str objects, uint64_t n);
/* Writes them into the next file. */
void trace_file_write_next(struct trace_file *file, struct str objects, uint64_t n);
void trace_file_close(struct trace_file *file);

#endif
