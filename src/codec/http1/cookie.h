/* Finds a cookie in the Cookie header of a request.
 *
 * RFC 6265, 4.2.1 and 4.1.1. */
#ifndef SLUICE_CODEC_HTTP1_COOKIE_H
#define SLUICE_CODEC_HTTP1_COOKIE_H

#include <stdbool.h>

#include "core/base/str.h"

/* Is it a valid name of a cookie? */
bool cookie_is_name(struct str name);
/* Returns: the value of the first cookie called `name` in a header "a=1; b=2", without quotes
 * around it, as a view of the header; ptr NULL when there is none. A cookie whose value contains
 * invalid bytes is skipped. */
struct str cookie_find(struct str header, struct str name);

#endif
