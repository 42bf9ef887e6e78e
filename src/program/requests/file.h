/* Whole files for the command line: read into an arena, written from pieces. "-" is standard input
 * or output. */
#ifndef SLUICE_PROGRAM_REQUESTS_FILE_H
#define SLUICE_PROGRAM_REQUESTS_FILE_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Reads the whole file. Standard input can be read once. Returns: ST_IO with the file and the
 * reason; ST_BODY_TOO_LARGE for more than `max_bytes`. Owns: in `arena`. */
enum status file_read(struct arena *arena, const char *path, uint64_t max_bytes, struct str *out,
                      struct error *err) SLUICE_MUST_USE;
/* The file's name in messages: the path, or "standard input". */
const char *file_name(const char *path);
/* Writes the pieces, replacing the file. Returns: ST_IO. */
enum status file_write(const char *path, const struct str *pieces, size_t n,
                       struct error *err) SLUICE_MUST_USE;

#endif
