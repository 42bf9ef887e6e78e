/* A thread that is assigned to an arena creates it: main goes through all and back to its own. */
#include "program/process/heap.h"

#include <stdbool.h>
#include <stddef.h>

/* NULL in a build with another allocator, such as a sanitizer's. */
extern int mallctl(const char *name, void *old_value, size_t *old_bytes, void *new_value,
                   size_t new_bytes) __attribute__((weak));

static bool use_arena(unsigned i) {
    return mallctl("thread.arena", NULL, NULL, &i, sizeof(i)) == 0;
}

enum status heap_make_arenas(struct error *err) {
    unsigned n, own;
    size_t n_bytes = sizeof(n);
    if (!mallctl || mallctl("opt.narenas", &n, &n_bytes, NULL, 0) != 0 ||
        mallctl("thread.arena", &own, &n_bytes, NULL, 0) != 0) {
        return ST_OK;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!use_arena(i)) {
            (void)use_arena(own);
            return error_set(err, ST_NO_MEMORY,
                             "no address space for arena %u of the heap's %u (ulimit -v; "
                             "MALLOC_CONF=narenas:N takes fewer)",
                             i + 1, n);
        }
    }
    (void)use_arena(own);
    return ST_OK;
}
