/* An arena for every test of a file, each listed as cmocka_unit_test_setup_teardown(TEST, setup,
 * teardown). For tests only. */
#ifndef SLUICE_CORE_BASE_ARENA_FIXTURE_H
#define SLUICE_CORE_BASE_ARENA_FIXTURE_H

#include "core/base/arena.h"

static struct arena *arena;

static inline int setup(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    return arena ? 0 : -1;
}

static inline int teardown(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

#endif
