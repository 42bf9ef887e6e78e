/* Runs a program and collects its output. It has no standard input, a session of its own, and a
 * time limit, at which it is killed with all processes that it started.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_OS_CHILD_H
#define SLUICE_CORE_OS_CHILD_H

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"

struct child;

/* The result. The texts are valid until the callback returns. */
struct child_result {
    /* ST_OK: it exited with code 0. Else a text without the program's name: ST_IO (another code, or
     * a signal), ST_DEADLINE_EXCEEDED, ST_CANCELLED, ST_BODY_TOO_LARGE. */
    struct error error;
    struct str output;
    struct str stderr_tail; /* the last line of its standard error; empty: none */
};

/* Read during child_start only. */
struct child_spec {
    const char *const *argv; /* ends with NULL; a name without a slash is searched for in $PATH */
    /* "NAME=value": added to this process's environment, or in place of its value; ends with
     * NULL. */
    const char *const *env;
    uint64_t timeout_ns;
    size_t max_output_bytes; /* of its standard output */
    /* Called once, never within child_start; all handles are closed by then. */
    void (*done)(void *user, const struct child_result *result);
    void *user;
};

/* Returns: ST_IO (no such program, …), ST_NO_MEMORY. Owns: *out until the callback. */
enum status child_start(struct worker *worker, const struct child_spec *spec, struct child **out,
                        struct error *err) SLUICE_MUST_USE;
/* Kills the child; the callback is called with ST_CANCELLED. */
void child_cancel(struct child *child);

/* The environment of a child: this process's, with the variables of `env` added or in place of its
 * own. Returns: NULL when out of memory. Owns: the caller, the array alone; the texts are those of
 * `env` and of this process. */
char **child_environment(const char *const *env);

#endif
