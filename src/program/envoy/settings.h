/* The configuration of the filter, as settings of `sluice pick`. */
#ifndef SLUICE_PROGRAM_ENVOY_SETTINGS_H
#define SLUICE_PROGRAM_ENVOY_SETTINGS_H

#include "program/picker/settings.h"

/* `config` is an object with settings by the names of their flags (a list for a repeated one, true
 * for a switch), in JSON, as Envoy passes a Struct, or in YAML; or the name of the pools' file
 * alone. Settings of the picker's own server are refused. Returns: ST_BAD_CONFIG, ST_IO. Owns:
 * texts are in `arena`. */
enum status envoy_settings_read(struct str config, struct arena *arena, struct pick_settings *out,
                                struct error *err) SLUICE_MUST_USE;

#endif
