/* For session tests: moves a session's bytes in pieces of a chosen size, as a connection would. */
#ifndef SLUICE_CLIENT_CONNECTION_SESSION_FIXTURE_H
#define SLUICE_CLIENT_CONNECTION_SESSION_FIXTURE_H

#include <assert.h>
#include <string.h>

#include "client/connection/session.h"

/* Sends at most `step` bytes at a time, from at most `max` pieces, until everything is sent.
 * Returns: number of bytes in `out`. */
static inline size_t session_send(struct session *session, char *out, size_t step, size_t max) {
    struct iovec pieces[64];
    size_t n_pieces, n_sent = 0;
    assert(max <= 64);
    while ((n_pieces = session->ops->output(session, pieces, max)) > 0) {
        size_t left = step;
        assert(n_pieces <= max);
        for (size_t i = 0; i < n_pieces && left > 0; i++) {
            size_t n = pieces[i].iov_len < left ? pieces[i].iov_len : left;
            assert(pieces[i].iov_len > 0);
            memcpy(out + n_sent, pieces[i].iov_base, n);
            n_sent += n;
            left -= n;
        }
        session->ops->sent(session, step - left);
    }
    return n_sent;
}

/* Passes `n_bytes` at `data` to the session, at most `step` at a time, until it is done or
 * fails. Returns: number of unused bytes. */
static inline size_t session_answer(struct session *session, const char *data, size_t n_bytes,
                                    size_t step, enum status *status, struct error *err) {
    *status = ST_OK;
    while (n_bytes > 0 && *status == ST_OK && !session->done) {
        struct iovec pieces[SESSION_MAX_INPUT_PIECES];
        size_t n_pieces = session->ops->input(session, pieces), n_given = 0;
        assert(n_pieces > 0 && n_pieces <= SESSION_MAX_INPUT_PIECES);
        for (size_t i = 0; i < n_pieces && n_given < step; i++) {
            size_t n = pieces[i].iov_len;
            assert(n > 0);
            n = n < n_bytes ? n : n_bytes;
            n = n < step - n_given ? n : step - n_given;
            memcpy(pieces[i].iov_base, data, n);
            data += n;
            n_bytes -= n;
            n_given += n;
        }
        *status = session->ops->received(session, n_given, err);
    }
    return n_bytes;
}

#endif
