/* One HTTP exchange of a client, as a session (session.h).
 *
 * The body of an answer is received in its final place if its length is known, and aligned so
 * that the bytes after its JSON part start at a 64-byte boundary. The buffer is reused for the
 * next answer: once it is large enough nothing is allocated. */
#ifndef SLUICE_CLIENT_CONNECTION_HTTP_SESSION_H
#define SLUICE_CLIENT_CONNECTION_HTTP_SESSION_H

#include <stdint.h>

#include "client/connection/session.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

struct http_session;

/* The request; its bytes must stay until the exchange is done. */
struct http_message {
    const struct piece *pieces; /* the head first */
    size_t n_pieces;
};

/* Returns: NULL when out of memory. `max_answer_bytes` bounds the body of an answer. */
struct http_session *http_session_new(uint64_t max_answer_bytes);
void http_session_free(struct http_session *session);
struct session *http_session_base(struct http_session *session);

/* Where the bodies of the next answers are received; NULL: the session's own block. The block must
 * stay until the exchange is done; its owner frees it. */
void http_session_set_block(struct http_session *session, struct answer_block *block);
void http_session_begin(struct http_session *session, struct http_message message);
/* The caller takes the body of a successful answer while it arrives. After begin.
 * `max_answer_bytes` is not checked then: the caller bounds what it leaves. */
void http_session_set_streams(struct http_session *session);
/* Removes bytes from the beginning of such a body. */
void http_session_take(struct http_session *session, size_t n_bytes);
/* Has such an answer begun? Its head can be read then, and the body as far as it has arrived. */
bool http_session_is_streaming(const struct http_session *session);

/* The answer of a completed exchange, until the next begin. */
int http_session_status(const struct http_session *session);
/* Returns: the number of header fields with that name; *value is the first one's. */
size_t http_session_find(const struct http_session *session, const char *name, struct str *value);
/* The header fields by index. */
size_t http_session_n_fields(const struct http_session *session);
void http_session_field(const struct http_session *session, size_t index, struct str *name,
                        struct str *value);
struct str http_session_body(const struct http_session *session);

#endif
