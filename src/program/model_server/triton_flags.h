/* Triton's command line, as `sluice tritonserver` takes it: read with getopt_long, as Triton does,
 * and translated into the arguments of `sluice serve`, with Triton's defaults. Flags without an
 * effect are logged with the reason; those that would be missed are refused. triton_flags.def has
 * a row for each. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_TRITON_FLAGS_H
#define SLUICE_PROGRAM_MODEL_SERVER_TRITON_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "program/options/flag_note.h"

struct triton_flags {
    bool help;   /* --help was given; nothing else is set */
    int argc;    /* the arguments of `sluice serve` */
    char **argv; /* ends with NULL */
    /* Levels of the log that are turned off, whatever the others are. */
    bool no_info, no_warning, no_error;
    const struct flag_note *notes; /* of flags without an effect */
    size_t n_notes;
};

/* argv[0] is "tritonserver". Reads variables of the environment where Triton does (AIP_MODE and its
 * kin). Not reentrant: getopt_long's state is the process's. Returns: ST_BAD_CONFIG with the flag.
 * Owns: new texts are in the arena; those of argv are borrowed, and its order may change. */
enum status triton_flags_read(int argc, char **argv, struct arena *arena, struct triton_flags *out,
                              struct error *err) SLUICE_MUST_USE;

/* Logs a line for each note. */
void triton_flags_log(const struct triton_flags *flags);

/* Appends the list of all flags, with what each does here. */
void triton_flags_help(struct buf *out);

#endif
