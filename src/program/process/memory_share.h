/* Settings that are a size or a percentage (MEMORY in the tables of settings): a percentage is a
 * share of the memory that this process may use. */
#ifndef SLUICE_PROGRAM_PROCESS_MEMORY_SHARE_H
#define SLUICE_PROGRAM_PROCESS_MEMORY_SHARE_H

#include "core/base/buf.h"
#include "core/os/memory_limit.h"
#include "program/options/options.h"

enum { MEMORY_SHARE_TEXT_BYTES = 128 };

/* Turns a percentage into bytes, at least 1. Does nothing with a size. */
void memory_share_resolve(struct option_memory *memory, const struct memory_limit *limit);

/* A share that is more than `most` becomes that: of memory for clients, memory for bodies is a
 * part. Does nothing with a size. */
void memory_share_cap(struct option_memory *memory, const struct option_memory *most);

/* Prints "256 MiB (50% of 512 MiB, limit of the cgroup)", or for a size
 * "1 GiB (of 512 MiB, limit of the cgroup)". Returns: `out`. */
const char *memory_share_print(char out[MEMORY_SHARE_TEXT_BYTES],
                               const struct option_memory *memory,
                               const struct memory_limit *limit);

/* Adds a line of --check: the setting's name in words ("body memory"), then the text of
 * memory_share_print. */
void memory_share_add_line(struct buf *out, const char *name, const struct option_memory *memory,
                           const struct memory_limit *limit);
/* Logs the same at the start, and warns of a size that is over the limit. */
void memory_share_log(const char *name, const struct option_memory *memory,
                      const struct memory_limit *limit);

#endif
