/* One cookie of a request's header.
 *
 * RFC 6265, 4.2.1 and 4.1.1. */
#ifndef SLUICE_CODEC_HTTP1_COOKIE_H
#define SLUICE_CODEC_HTTP1_COOKIE_H

#include <stdbool.h>

#include "core/base/str.h"

/* Can a cookie have this name? */
bool cookie_is_name(struct str name);
/* The value of the first cookie called `name` in a header "a=1; b=2", without the quotes that it
 * may have around it. One whose value has bytes that none may have is passed over. Returns: a view
 * of the header; ptr NULL where there is none. */
struct str cookie_find(struct str header, struct str name);

#endif
