/* What the proxy says of a request's last attempt to reach an endpoint. */
#ifndef SLUICE_PICK_SESSION_ATTEMPT_H
#define SLUICE_PICK_SESSION_ATTEMPT_H

#include <stdint.h>

#include "core/base/str.h"

enum pick_attempt {
    PICK_ATTEMPT_UNKNOWN,       /* nothing of the endpoint: the proxy replied for a reason of its
                                   own */
    PICK_ATTEMPT_ANSWERED,      /* the response is the endpoint's */
    PICK_ATTEMPT_NOT_CONNECTED, /* the connection was refused, or not made in time */
    PICK_ATTEMPT_FAILED,        /* connected, then reset, malformed or too late before a response */
};

/* `details`: Envoy's attribute response.code_details; may be empty. Returns: as attempt.def
 * says. */
enum pick_attempt pick_attempt_of_details(struct str details);
/* `flags`: its attribute response.flags, for proxies that do not send the details. */
enum pick_attempt pick_attempt_of_flags(uint64_t flags);

#endif
