/* Runs the gateway: an Envoy, its files, and the operators' pages. */
#ifndef SLUICE_PROGRAM_GATEWAY_PROCESS_H
#define SLUICE_PROGRAM_GATEWAY_PROCESS_H

#include "program/gateway/settings.h"

/* Serves until a signal. Returns: why it can't start, or why it has ended by itself. */
enum status gateway_process_run(const struct gateway_settings *settings,
                                struct error *err) SLUICE_MUST_USE;
/* Prints Envoy's configuration for an Envoy without the gateway. Returns: the exit code. */
int gateway_print_config(const struct gateway_settings *settings, struct arena *arena);

#endif
