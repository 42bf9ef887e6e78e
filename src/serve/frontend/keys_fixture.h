/* A file of keys for tests: each test program has one path of its own. */
#ifndef SLUICE_SERVE_FRONTEND_KEYS_FIXTURE_H
#define SLUICE_SERVE_FRONTEND_KEYS_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/log.h"

static char keys_path[256];

static inline void keys_path_write(const char *text) {
    FILE *file = fopen(keys_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The group's setup and teardown. */
static inline int keys_path_make(void **state) {
    const char *tmp = getenv("TMPDIR");
    (void)state;
    log_configure(LOG_ERROR, LOG_TEXT);
    snprintf(keys_path, sizeof(keys_path), "%s/sluice_keys_XXXXXX", tmp ? tmp : "/tmp");
    int fd = mkstemp(keys_path);
    assert_true(fd >= 0);
    return close(fd);
}

static inline int keys_path_remove(void **state) {
    (void)state;
    return unlink(keys_path);
}

#endif
