/* Words for a thread that cannot be started.
 *
 * Thread: any. */
#ifndef SLUICE_CORE_EVENT_THREAD_H
#define SLUICE_CORE_EVENT_THREAD_H

#include <uv.h>

/* `rc`: what uv_thread_create returned. Returns: the reason, for an error text. */
static inline const char *thread_start_error(int rc) {
    return rc == UV_EAGAIN ? "no more threads can be started (ulimit -u, pids.max of the control "
                             "group) or there is no memory for one"
                           : uv_strerror(rc);
}

#endif
