/* The options of `sluice ping`, made from ping.def. */
#ifndef SLUICE_PROGRAM_COMMANDS_PING_SETTINGS_H
#define SLUICE_PROGRAM_COMMANDS_PING_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/connection/url.h"
#include "program/options/options.h"

/* One member per row, named by its first column, and values derived from them. */
struct ping_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/commands/ping.def"
#undef OPTION
    struct client_url server; /* the parsed URL */
};

/* Parses the arguments, as serve_settings_read. */
int ping_settings_read(int argc, char **argv, struct arena *arena, struct ping_settings *out);

#endif
