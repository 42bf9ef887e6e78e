/* The options of `sluice ping`, made from ping.def. */
#ifndef SLUICE_CLI_PING_SETTINGS_H
#define SLUICE_CLI_PING_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
#include "client/client_url.h"

/* One member per row, named by its first column, and what follows from them. */
struct ping_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "cli/ping.def"
#undef OPTION
    struct client_url server; /* the URL's parts */
};

/* Reads the arguments; as serve_settings_read. */
int ping_settings_read(int argc, char **argv, struct arena *arena, struct ping_settings *out);

#endif
