/* Runs a program beside this one, for as long as it takes: its standard error as lines, its end,
 * and signals to it. It is in a process group of its own, so that Ctrl-C reaches only this process,
 * and the kernel kills it when this process ends, however that happens (PR_SET_PDEATHSIG).
 *
 * Thread: the worker's, for everything; the worker's thread must live as long as the program. */
#ifndef SLUICE_CORE_OS_SUBPROCESS_H
#define SLUICE_CORE_OS_SUBPROCESS_H

#include <sys/types.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"

struct subprocess;

enum { SUBPROCESS_LINE_BYTES = 16384 }; /* what is longer comes as several lines */

/* Read during subprocess_start only. */
struct subprocess_spec {
    const char *const *argv; /* ends with NULL; argv[0] is a path */
    const char *const *env;  /* as of child_spec */
    /* A line of its standard error, without its end; valid until the callback returns. */
    void (*on_line)(void *user, struct str line);
    /* The program has ended, after its last line; called once, never within subprocess_start, with
     * the status of waitpid. The subprocess is freed afterwards. */
    void (*on_exit)(void *user, int wait_status);
    void *user;
};

/* The program has no standard input, and this process's standard output. Returns: ST_IO (no such
 * program, …), ST_NO_MEMORY. Owns: *out until on_exit has returned. */
enum status subprocess_start(struct worker *worker, const struct subprocess_spec *spec,
                             struct subprocess **out, struct error *err) SLUICE_MUST_USE;
pid_t subprocess_pid(const struct subprocess *subprocess);
/* No effect once it has ended. */
void subprocess_signal(const struct subprocess *subprocess, int signum);

#endif
