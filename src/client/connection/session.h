/* The client's side of a protocol: one exchange at a time, sans I/O. A session provides the next
 * bytes to send and the place for received bytes, and is told how many were moved. Sending and
 * receiving overlap, because an answer may come before all of the request is sent. Implemented by
 * http_session.h and mip_session.h.
 *
 *     begin (each session's own) → output/sent and input/received in any order → done */
#ifndef SLUICE_CLIENT_CONNECTION_SESSION_H
#define SLUICE_CLIENT_CONNECTION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "core/base/status.h"

/* Memory that the bytes of an answer are received into, and that the next answer reuses. Each call
 * of libsluice has one, so that its answer stays while the next call runs. Zero-initialized. */
struct answer_block {
    char *data; /* from malloc or aligned_alloc; the owner of the block frees it */
    size_t n_bytes;
};

enum { SESSION_MAX_INPUT_PIECES = 2 };

struct session {
    const struct session_ops *ops;
    bool answered;      /* a byte of an answer was received */
    bool outcome_known; /* the result is known; further bytes are dropped */
    bool done;          /* the exchange is complete */
    bool reusable;      /* valid when done: the connection may be reused */
    bool paused;        /* the caller wants no more bytes of the answer for now */
};

struct session_ops {
    /* Starts the same exchange again: nothing sent, nothing received. */
    void (*restart)(struct session *session);
    /* The next bytes to send, in at most `max` non-empty pieces; the same ones until they are
     * sent. Returns: number of pieces; 0: everything is sent. */
    size_t (*output)(struct session *session, struct iovec *out, size_t max);
    void (*sent)(struct session *session, size_t n_bytes);
    /* Sending has failed; an answer may still come. */
    void (*drop_output)(struct session *session);
    /* Where to store the next received bytes, in non-empty pieces. Not when done. Returns:
     * number of pieces, at least 1. */
    size_t (*input)(struct session *session, struct iovec out[SESSION_MAX_INPUT_PIECES]);
    /* `n_bytes` (> 0) were received there. Returns: ST_BAD_ANSWER with the reason,
     * ST_BODY_TOO_LARGE, ST_NO_MEMORY;
     * the connection can't be used after that. */
    enum status (*received)(struct session *session, size_t n_bytes,
                            struct error *err) SLUICE_MUST_USE;
    /* The server closed the connection. Returns: ST_OK if that completes the answer, ST_IO if
     * none had begun, ST_BAD_ANSWER in the middle of one. */
    enum status (*closed)(struct session *session, struct error *err) SLUICE_MUST_USE;
};

#endif
