/* The configuration of the filter, as settings of `sluice pick`. */
#ifndef SLUICE_PROGRAM_ENVOY_SETTINGS_H
#define SLUICE_PROGRAM_ENVOY_SETTINGS_H

#include "program/picker/settings.h"

struct envoy_arguments {
    struct arena *arena; /* which never fails (core/must/must.h) */
    char **items;        /* "pick", then flags and values */
    int n;
    struct str text; /* all of them: the same for the same settings, in whatever order */
};

/* `config` is an object with settings by the names of their flags (a list for a repeated one, true
 * for a switch), in JSON, as Envoy passes a Struct, or in YAML; or the name of the pools' file
 * alone. Settings of the picker's own server are refused. Returns: ST_BAD_CONFIG. Owns: in
 * `arena`. */
enum status envoy_arguments_read(struct str config, struct arena *arena,
                                 struct envoy_arguments *out, struct error *err) SLUICE_MUST_USE;
/* Returns: ST_BAD_CONFIG, ST_IO. Owns: texts are in the arena of the arguments. */
enum status envoy_settings_read(const struct envoy_arguments *arguments, struct pick_settings *out,
                                struct error *err) SLUICE_MUST_USE;

#endif
