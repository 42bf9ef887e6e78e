/* One HTTP exchange of a client, sans I/O: it says which bytes to send next and where received
 * bytes shall go, and is told how many moved. It sends and reads at the same time, as an answer may
 * come before all of the request has left. It refuses to know sockets, clocks, and what a body
 * means.
 *
 *     client_session_begin → output/sent and input/received in any order → client_session_is_done
 *
 * The body of an answer is received in its final place when its length is known, and laid out so
 * that the bytes behind its JSON part fall on a 64-byte boundary. The place is kept for the next
 * answer: once it is large enough nothing is allocated. */
#ifndef SLUICE_CLIENT_CLIENT_SESSION_H
#define SLUICE_CLIENT_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

struct client_session;

/* What is sent; the bytes must stay until the exchange is done. */
struct client_message {
    const struct piece *pieces; /* the head first */
    size_t n_pieces;
};

/* Returns: NULL when out of memory. `max_answer_bytes` bounds the body of an answer. */
struct client_session *client_session_new(uint64_t max_answer_bytes);
void client_session_free(struct client_session *session);

void client_session_begin(struct client_session *session, struct client_message message);

/* The bytes to send next, in at most `max` pieces. Returns: how many; 0: everything was sent. */
size_t client_session_output(const struct client_session *session, struct iovec *out, size_t max);
void client_session_sent(struct client_session *session, size_t n_bytes);
/* Nothing more can be sent; an answer may still come. */
void client_session_drop_output(struct client_session *session);

/* Where the next received bytes go: *n_bytes at *at, at least 1. Not when done. */
void client_session_input(struct client_session *session, char **at, size_t *n_bytes);
/* `n_bytes` were received there. Returns: ST_BAD_ANSWER saying what is wrong with them; the
 * connection is then of no more use. */
enum status client_session_received(struct client_session *session, size_t n_bytes,
                                    struct error *err) __attribute__((warn_unused_result));
/* The server ended the connection. Returns: ST_BAD_ANSWER unless that ends the answer. */
enum status client_session_closed(struct client_session *session, struct error *err)
    __attribute__((warn_unused_result));

bool client_session_is_done(const struct client_session *session);
/* Was no byte of an answer received? */
bool client_session_is_unanswered(const struct client_session *session);
/* When done: may the connection be used again? */
bool client_session_keeps_alive(const struct client_session *session);

/* The answer, when done, until the next begin. */
int client_session_status(const struct client_session *session);
size_t client_session_find(const struct client_session *session, const char *name,
                           struct str *value);
struct str client_session_body(const struct client_session *session);

#endif
