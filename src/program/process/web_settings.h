/* The settings --allowed-host and --allowed-origin, which both servers have. */
#ifndef SLUICE_PROGRAM_PROCESS_WEB_SETTINGS_H
#define SLUICE_PROGRAM_PROCESS_WEB_SETTINGS_H

#include "codec/http1/web_access.h"
#include "program/options/options.h"

/* Checks the values, and adds the machine's name. `out` has views of them. Returns: ST_BAD_CONFIG
 * with the flag. */
enum status web_settings_resolve(const struct option_texts *allowed_hosts,
                                 const struct option_texts *allowed_origins, struct arena *arena,
                                 struct web_access *out, struct error *err) SLUICE_MUST_USE;

#endif
