/* Connections on which one request follows the other (HTTP/1.1, MIP): the states a connection goes
 * through from a request to the next, and the hooks of struct net_protocol that follow from them.
 * Pipelined requests wait for the answer before them. For the files of this room only. */
#ifndef SLUICE_NET_SERVER_SERIAL_H
#define SLUICE_NET_SERVER_SERIAL_H

#include "net/server/call.h"

/* What a connection does now. serial_set_state is the only one that changes it. */
enum serial_state {
    SERIAL_IDLE,       /* no byte of the next request has come */
    SERIAL_HEAD,       /* a head is being read */
    SERIAL_BODY,       /* the head is understood; the body is being read */
    SERIAL_WAIT,       /* the handler has the whole request */
    SERIAL_REPLY,      /* the answer is being written; nothing more of the request is read */
    SERIAL_REPLY_SKIP, /* the same, while the rest of a refused body is read and dropped */
    SERIAL_SKIP,       /* the answer is written; the rest of the body is still dropped */
    SERIAL_ENDED,      /* over: the connection lingers, or is closed */
    SERIAL_STATES,
};

enum { SERIAL_SKIP_BYTES = 65536 }; /* the rest of a refused body that is worth a connection */

/* At the front of a protocol's connection. */
struct serial_conn {
    struct net_conn net;
    struct net_call *call; /* NULL: between requests */
    uint64_t skip_left;    /* of a body of known length, when it is skipped */
    uint8_t state;         /* enum serial_state */
};

static inline bool serial_is_closed(const struct serial_conn *conn) {
    return conn->net.phase == NET_CLOSED;
}

void serial_set_state(struct serial_conn *conn, enum serial_state state);
/* The request at hand is over: the next one, or the end. */
void serial_next(struct serial_conn *conn);
/* As much of `data` as belongs to the body of the call at hand goes there; or so many bytes were
 * read straight into it. Its length is known; skip_left is what is still to come of it. Returns:
 * what body_add and body_advance do. */
enum status serial_body_add(struct serial_conn *conn, struct str *data, struct error *err)
    __attribute__((warn_unused_result));
enum status serial_body_advance(struct serial_conn *conn, size_t n_bytes, struct error *err)
    __attribute__((warn_unused_result));
/* The most of a refused body that is skipped to keep the connection. */
uint64_t serial_most_skipped(const struct serial_conn *conn);
/* Drops what `data` has of the skip_left bytes (state REPLY_SKIP or SKIP). */
void serial_skip(struct serial_conn *conn, struct str *data);
/* All is dropped; or (`last`) it is not worth the connection. */
void serial_skip_end(struct serial_conn *conn);
/* Sends the answer of the call at hand (state REPLY or REPLY_SKIP); what follows from its being
 * sent happens inside, or later. */
void serial_send(struct serial_conn *conn, struct net_outgoing *out);
/* It is sent. */
void serial_answered(struct serial_conn *conn);

/* ---- hooks of struct net_protocol ------------------------------------------------------------ */

char *serial_room(struct net_conn *conn, size_t *n_bytes);
bool serial_on_eof(struct net_conn *conn);
void serial_on_close(struct net_conn *conn);
bool serial_wants_to_read(const struct net_conn *conn);
enum net_timeout serial_timeout_of(const struct net_conn *conn, bool *keeps);
bool serial_is_idle(const struct net_conn *conn);
void serial_on_written(struct net_call *call);
/* In describe.c. */
void serial_describe(const struct net_conn *conn, struct buf *out);

#endif
