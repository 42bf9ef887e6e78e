/* The flags of the upstream project's picker, turned into those of `sluice pick`, so that its
 * manifests work as they are. As soon as there is one that only upstream has, its defaults hold as
 * well: it listens on every address, with TLS, with health at a port of its own, and asks the
 * endpoints for their loads. What is passed over has a line in the log; what can't be had and would
 * be missed is refused. */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_FLAGS_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"

/* A flag that changes nothing. */
struct upstream_note {
    const char *flag; /* "--tracing=true" */
    const char *why;
};

struct upstream_flags {
    bool used;   /* there was one that only upstream has */
    int argc;    /* what is to be read in place of what was given */
    char **argv; /* ends with NULL */
    const struct upstream_note *notes;
    size_t n_notes;
    const char *config;            /* YAML for the pool (pool_watch_options.more); NULL: none */
    const char *extra_config_flag; /* the first flag that it is of; NULL: it is only upstream's
                                      default */
};

/* argv[0] is "pick". Nothing behind "--", or behind --help, is looked at. Returns: ST_BAD_CONFIG
 * with the flag, ST_NO_MEMORY. Owns: what is made is the arena's; texts of argv are kept. */
enum status upstream_flags_read(int argc, char **argv, struct arena *arena,
                                struct upstream_flags *out, struct error *err)
    __attribute__((warn_unused_result));

/* A line for each note, and one that says which defaults hold. */
void upstream_flags_log(const struct upstream_flags *flags);

#endif
