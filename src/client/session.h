/* What a client needs of a protocol: one exchange at a time, sans I/O. A session says which bytes
 * to send next and where received bytes shall go, and is told how many moved. It sends and receives
 * at the same time, as an answer may come before all of the request has left. It refuses to know
 * sockets and clocks. http_session.h and mip_session.h are the two there are.
 *
 *     begin (each session's own) → output/sent and input/received in any order → done */
#ifndef SLUICE_CLIENT_SESSION_H
#define SLUICE_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "core/base/status.h"

enum { SESSION_MAX_INPUT_PIECES = 2 };

struct session {
    const struct session_ops *ops;
    bool answered;      /* a byte of an answer came */
    bool outcome_known; /* what comes of the exchange is known; what is still received is
                            dropped */
    bool done;          /* the exchange is complete */
    bool reusable;      /* when done: the connection may be used again */
};

struct session_ops {
    /* The same exchange from its beginning: nothing is sent, nothing received. */
    void (*restart)(struct session *session);
    /* The bytes to send next, in at most `max` pieces, none of them empty; the same ones until they
     * are sent. Returns: how many; 0: everything was sent. */
    size_t (*output)(struct session *session, struct iovec *out, size_t max);
    void (*sent)(struct session *session, size_t n_bytes);
    /* Nothing more can be sent; an answer may still come. */
    void (*drop_output)(struct session *session);
    /* Where the next received bytes go; none of the pieces is empty. Not when done. Returns: how
     * many pieces, at least 1. */
    size_t (*input)(struct session *session, struct iovec out[SESSION_MAX_INPUT_PIECES]);
    /* `n_bytes` (> 0) were received there. Returns: ST_BAD_ANSWER saying what is wrong with them,
     * ST_NO_MEMORY; the connection is then of no more use. */
    enum status (*received)(struct session *session, size_t n_bytes, struct error *err)
        __attribute__((warn_unused_result));
    /* The server ended the connection. Returns: ST_OK where that ends the answer, ST_IO where none
     * had begun, ST_BAD_ANSWER in the middle of one. */
    enum status (*closed)(struct session *session, struct error *err)
        __attribute__((warn_unused_result));
};

#endif
