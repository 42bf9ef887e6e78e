/* Checks whether a TCP connection can be made: one is opened and closed at once, without sending a
 * byte.
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

/* Returns: whether a connection failed for what this process or machine lacks (descriptors,
 * buffers, ports), which says nothing about the other end. `number`: of errno, or one of
 * libuv's. */
bool dial_error_is_local(int number);

struct dial_result {
    /* ST_OK; ST_IO, ST_DEADLINE_EXCEEDED, ST_OVERLOADED (dial_error_is_local): text without the
     * address */
    struct error error;
    bool refused; /* ST_IO: connection refused */
};

/* Connects to `address`, "IP:PORT". `done` is called once, never from within this function; the
 * dial has ended then, though its handle may close a little later. Returns: ST_BAD_CONFIG, ST_IO,
 * ST_OVERLOADED (dial_error_is_local), ST_NO_MEMORY. Owns: *out until `done` or dial_cancel. */
enum status dial_start(struct worker *worker, struct str address, uint64_t timeout_ns,
                       void (*done)(void *user, const struct dial_result *result), void *user,
                       struct dial **out, struct error *err) SLUICE_MUST_USE;
/* Cancels it; `done` is not called. Its handle closes in the next event-loop iteration. */
void dial_cancel(struct dial *dial);

#endif
