/* The heap of a server's process. */
#ifndef SLUICE_PROGRAM_PROCESS_HEAP_H
#define SLUICE_PROGRAM_PROCESS_HEAP_H

#include "core/base/status.h"

/* Makes all arenas of jemalloc now. Later, a thread that gets none for lack of address space would
 * crash at its first allocation, also one of a library. Nothing happens with another allocator.
 * Returns: ST_NO_MEMORY. Thread: main, before others start. */
enum status heap_make_arenas(struct error *err) SLUICE_MUST_USE;

#endif
