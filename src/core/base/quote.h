/* Names in messages. */
#ifndef SLUICE_CORE_BASE_QUOTE_H
#define SLUICE_CORE_BASE_QUOTE_H

#include "core/base/str.h"

/* Enough for any name's text in a message; longer ones are cut. */
enum { QUOTED_NAME_BYTES = 100 };
/* Prints `name` in quotes, NUL-terminated, for a message (error_set replaces invalid bytes). A name
 * may come from a peer and have any length. Returns: `out`. */
const char *quote_name(struct str name, char out[QUOTED_NAME_BYTES]);
/* The same in single quotes, for a message that begins as the reference server's does: clients
 * compare those. */
const char *quote_name_single(struct str name, char out[QUOTED_NAME_BYTES]);

#endif
