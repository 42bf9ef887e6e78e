/* Can a TCP connection be made there? One is made and closed at once; nothing is said on it.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_NET_CLIENT_DIAL_H
#define SLUICE_NET_CLIENT_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"

struct dial;

struct dial_result {
    struct error error; /* ST_OK; ST_IO, ST_DEADLINE_EXCEEDED with a sentence without the address */
    bool refused;       /* ST_IO: nothing listens there */
};

/* `address` is "IP:PORT". `done` comes once, never from within; by then the dial is over, though
 * its handle may close a little later. Returns: ST_BAD_CONFIG, ST_IO (no socket), ST_NO_MEMORY.
 * Owns: *out until `done` or dial_cancel. */
enum status dial_start(struct worker *worker, struct str address, uint64_t timeout_ns,
                       void (*done)(void *user, const struct dial_result *result), void *user,
                       struct dial **out, struct error *err) __attribute__((warn_unused_result));
/* Gives it up; `done` does not come. Its handle closes in the next round of the loop. */
void dial_cancel(struct dial *dial);

#endif
