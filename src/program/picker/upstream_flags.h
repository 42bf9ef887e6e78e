/* Translates the flags of the upstream project's picker into those of `sluice pick`, so that its
 * manifests work unchanged. If a flag occurs that only upstream has, its defaults apply as well:
 * all addresses, TLS, a health port, and scraping. Ignored flags are logged; flags that are not
 * supported and would be missed are rejected. */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_FLAGS_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "program/options/flag_note.h"

struct upstream_flags {
    bool used;                     /* a flag occurred that only upstream has */
    int argc;                      /* the translated arguments */
    char **argv;                   /* ends with NULL */
    const struct flag_note *notes; /* of flags without an effect */
    size_t n_notes;
    const char *config; /* YAML for the pools (pool_watch_options.extra_config); NULL: none */
    const char *extra_config_flag; /* the first flag of `config`; NULL: upstream's defaults only */
};

/* argv[0] is "pick". Arguments after "--" or --help are copied. Returns: ST_BAD_CONFIG with the
 * flag. Owns: new texts are in the arena; those of argv are borrowed. */
enum status upstream_flags_read(int argc, char **argv, struct arena *arena,
                                struct upstream_flags *out, struct error *err) SLUICE_MUST_USE;

/* Logs a line for each note, and one about upstream's defaults. */
void upstream_flags_log(const struct upstream_flags *flags);

#endif
