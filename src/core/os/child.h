/* A program that is run for what it prints. It has no standard input, a session of its own, and a
 * limit of time, at which it ends with all that it has started.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_OS_CHILD_H
#define SLUICE_CORE_OS_CHILD_H

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"

struct child;

/* What came of it. The texts are valid until the callback returns. */
struct child_result {
    /* ST_OK: it ended by itself, with code 0. Else a sentence without its name: ST_IO (another
     * code, or a signal), ST_DEADLINE_EXCEEDED, ST_CANCELLED, ST_BODY_TOO_LARGE. */
    struct error error;
    struct str output;
    struct str stderr_tail; /* the last line that it wrote to standard error; empty: none */
};

/* Read during child_start only. */
struct child_spec {
    const char *const *argv; /* ends with NULL; a name without a slash is looked for in $PATH */
    /* "NAME=value", instead of what this process has of these names, and besides the rest of it;
     * ends with NULL. */
    const char *const *env;
    uint64_t timeout_ns;
    size_t max_output_bytes; /* of what it prints */
    /* Once, never from within child_start; nothing of it is left on the loop then. */
    void (*done)(void *user, const struct child_result *result);
    void *user;
};

/* Returns: ST_IO (there is no such program, …), ST_NO_MEMORY. Owns: *out until the callback. */
enum status child_start(struct worker *worker, const struct child_spec *spec, struct child **out,
                        struct error *err) __attribute__((warn_unused_result));
/* Ends it; the callback comes, with ST_CANCELLED. */
void child_cancel(struct child *child);

#endif
