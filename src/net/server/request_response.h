/* Connections that process one request after the other (HTTP/1.1, MIP): the states from one request
 * to the next, and the hooks of struct net_protocol that follow from them. Internal to net/server.
 *
 * Back pressure: a pipelined request waits until the response before it is sent. Its bytes stay in
 * one pending-input buffer, and while that is in use the connection is not read, so a peer that
 * does not read its responses stops being read. */
#ifndef SLUICE_NET_SERVER_REQUEST_RESPONSE_H
#define SLUICE_NET_SERVER_REQUEST_RESPONSE_H

#include "net/server/call.h"

/* State of a connection. Changed only by request_response_set_state. */
enum request_response_state {
    REQUEST_RESPONSE_IDLE,  /* no byte of the next request received */
    REQUEST_RESPONSE_HEAD,  /* reading a head */
    REQUEST_RESPONSE_BODY,  /* the head is parsed; reading the body */
    REQUEST_RESPONSE_WAIT,  /* the handler has the whole request */
    REQUEST_RESPONSE_REPLY, /* writing the response; nothing more of the request is read */
    /* As REPLY, while the rest of a refused body is read and dropped. */
    REQUEST_RESPONSE_REPLY_SKIP,
    /* The response is written; the rest of the body is still dropped. */
    REQUEST_RESPONSE_SKIP,
    REQUEST_RESPONSE_ENDED, /* the connection lingers or is closed */
    REQUEST_RESPONSE_STATES,
};

enum {
    REQUEST_RESPONSE_SKIP_MAX_BYTES = 65536
}; /* a longer rest of a refused body closes the connection instead */

/* First member of a protocol's connection. */
struct request_response_conn {
    struct net_conn net;
    struct net_call *call; /* NULL: between requests */
    uint64_t skip_left;    /* bytes left of a skipped body whose length is known */
    uint8_t state;         /* enum request_response_state */
};

static inline bool request_response_is_closed(const struct request_response_conn *conn) {
    return conn->net.phase == NET_CLOSED;
}

void request_response_set_state(struct request_response_conn *conn,
                                enum request_response_state state);
/* The current request is done: prepares for the next one, or closes. */
void request_response_next_request(struct request_response_conn *conn);
/* Adds as much of `data` as belongs to the body of the current call; advance_body: that many bytes
 * were read in place. The body's length is known; skip_left is what remains of it. Returns: what
 * body_add and body_advance return. */
enum status request_response_add_body(struct request_response_conn *conn, struct str *data,
                                      struct error *err) SLUICE_MUST_USE;
enum status request_response_advance_body(struct request_response_conn *conn, size_t n_bytes,
                                          struct error *err) SLUICE_MUST_USE;
/* Returns: the largest rest of a refused body that is skipped to keep the connection. */
uint64_t request_response_max_skipped(const struct request_response_conn *conn);
/* Drops up to skip_left bytes of `data` (state REPLY_SKIP or SKIP). */
void request_response_skip_body(struct request_response_conn *conn, struct str *data);
/* All of the body is dropped. */
void request_response_finish_skip(struct request_response_conn *conn);
/* Sends the response of the current call (state REPLY or REPLY_SKIP);
 * request_response_on_reply_sent runs within, or later. */
void request_response_send(struct request_response_conn *conn, struct net_outgoing *out);
/* The response is sent. */
void request_response_on_reply_sent(struct request_response_conn *conn);

/* ---- hooks of struct net_protocol ------------------------------------------------------------ */

char *request_response_read_buffer(struct net_conn *conn, size_t *n_bytes);
bool request_response_on_eof(struct net_conn *conn);
void request_response_on_close(struct net_conn *conn);
bool request_response_wants_to_read(const struct net_conn *conn);
enum net_timeout request_response_timeout_of(const struct net_conn *conn, bool *keep_running);
bool request_response_is_idle(const struct net_conn *conn);
void request_response_on_written(struct net_call *call);
uint64_t request_response_body_bytes(const struct net_conn *conn);
void request_response_describe(const struct net_conn *conn, struct buf *out);

#endif
