/* Memory of the command line, of start-up and of configuration: when there is none, the process
 * ends with EXIT_FAILURE and one line on standard error, "sluice: out of memory for the settings",
 * so that no caller has an error path for it. `what` is the noun phrase of that line; it is not
 * copied.
 *
 * Neither for the path of a request nor for a size that a client decides: those answer
 * ST_NO_MEMORY. libsluice, which must not end the program it is in, is not linked with this module.
 *
 * Thread: any. */
#ifndef SLUICE_CORE_MUST_MUST_H
#define SLUICE_CORE_MUST_MUST_H

#include <stddef.h>

#include "core/base/arena.h"

_Noreturn void must_end(const char *what);

/* Returns: never NULL. Owns: the caller, until free. */
void *must_calloc(size_t n, size_t size, const char *what)
    __attribute__((malloc, returns_nonnull, alloc_size(1, 2)));
/* As realloc. */
void *must_realloc(void *ptr, size_t n, size_t size, const char *what)
    __attribute__((returns_nonnull, alloc_size(2, 3)));
/* A copy, followed by a NUL. */
char *must_dup(struct str text, const char *what) __attribute__((malloc, returns_nonnull));
/* `ptr`, which another function has allocated. */
void *must_have(void *ptr, const char *what) __attribute__((returns_nonnull));

/* An arena without a limit whose allocations never return NULL, nor the functions that print or
 * copy into it: a struct buf in it does not fail. Owns: the caller, until arena_free. */
struct arena *must_arena_new(const char *what) __attribute__((returns_nonnull));

#endif
