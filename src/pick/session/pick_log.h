/* The lines of the log about requests: which endpoint one got and why, or why it got none. */
#ifndef SLUICE_PICK_SESSION_PICK_LOG_H
#define SLUICE_PICK_SESSION_PICK_LOG_H

#include "core/os/log_limit.h"
#include "pick/session/session.h"

/* A line at debug, of a note with a pick. */
void pick_log(const struct pick_outcome *outcome);
/* A line at info, of one without; as many as `limit` allows, and all of them at debug. */
void pick_log_refusal(const struct pick_outcome *outcome, struct log_limit *limit);

#endif
