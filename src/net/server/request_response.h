/* Connections on which one request follows the other (HTTP/1.1, MIP): the states a connection goes
 * through from a request to the next, and the hooks of struct net_protocol that follow from them.
 * Pipelined requests wait for the answer before them. For the files of this room only. */
#ifndef SLUICE_NET_SERVER_REQUEST_RESPONSE_H
#define SLUICE_NET_SERVER_REQUEST_RESPONSE_H

#include "net/server/call.h"

/* What a connection does now. request_response_set_state is the only one that changes it. */
enum request_response_state {
    REQUEST_RESPONSE_IDLE,       /* no byte of the next request has come */
    REQUEST_RESPONSE_HEAD,       /* a head is being read */
    REQUEST_RESPONSE_BODY,       /* the head is understood; the body is being read */
    REQUEST_RESPONSE_WAIT,       /* the handler has the whole request */
    REQUEST_RESPONSE_REPLY,      /* the answer is being written; nothing more of the request is
                                    read */
    REQUEST_RESPONSE_REPLY_SKIP, /* the same, while the rest of a refused body is read and
                                    dropped */
    REQUEST_RESPONSE_SKIP,       /* the answer is written; the rest of the body is still dropped */
    REQUEST_RESPONSE_ENDED,      /* over: the connection lingers, or is closed */
    REQUEST_RESPONSE_STATES,
};

enum {
    REQUEST_RESPONSE_SKIP_MAX_BYTES = 65536
}; /* the rest of a refused body that is worth a
                                                     connection */

/* At the front of a protocol's connection. */
struct request_response_conn {
    struct net_conn net;
    struct net_call *call; /* NULL: between requests */
    uint64_t skip_left;    /* of a body of known length, when it is skipped */
    uint8_t state;         /* enum request_response_state */
};

static inline bool request_response_is_closed(const struct request_response_conn *conn) {
    return conn->net.phase == NET_CLOSED;
}

void request_response_set_state(struct request_response_conn *conn,
                                enum request_response_state state);
/* The request at hand is over: the next one, or the end. */
void request_response_next_request(struct request_response_conn *conn);
/* As much of `data` as belongs to the body of the call at hand goes there; or so many bytes were
 * read straight into it. Its length is known; skip_left is what is still to come of it. Returns:
 * what body_add and body_advance do. */
enum status request_response_add_body(struct request_response_conn *conn, struct str *data,
                                      struct error *err) __attribute__((warn_unused_result));
enum status request_response_advance_body(struct request_response_conn *conn, size_t n_bytes,
                                          struct error *err) __attribute__((warn_unused_result));
/* The most of a refused body that is skipped to keep the connection. */
uint64_t request_response_max_skipped(const struct request_response_conn *conn);
/* Drops what `data` has of the skip_left bytes (state REPLY_SKIP or SKIP). */
void request_response_skip_body(struct request_response_conn *conn, struct str *data);
/* All is dropped; or (`last`) it is not worth the connection. */
void request_response_finish_skip(struct request_response_conn *conn);
/* Sends the answer of the call at hand (state REPLY or REPLY_SKIP); what follows from its being
 * sent happens inside, or later. */
void request_response_send(struct request_response_conn *conn, struct net_outgoing *out);
/* It is sent. */
void request_response_on_reply_sent(struct request_response_conn *conn);

/* ---- hooks of struct net_protocol ------------------------------------------------------------ */

char *request_response_read_buffer(struct net_conn *conn, size_t *n_bytes);
bool request_response_on_eof(struct net_conn *conn);
void request_response_on_close(struct net_conn *conn);
bool request_response_wants_to_read(const struct net_conn *conn);
enum net_timeout request_response_timeout_of(const struct net_conn *conn, bool *keep_running);
bool request_response_is_idle(const struct net_conn *conn);
void request_response_on_written(struct net_call *call);
/* In conn_describe.c. */
void request_response_describe(const struct net_conn *conn, struct buf *out);

#endif
