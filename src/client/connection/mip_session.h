/* One MIP exchange of a client, as a session (session.h): a ping or an inference is sent, and
 * the answer or a protocol error is received. Items are sent without a copy; the payload of an
 * answer is received in its final place, the caller's buffer or a buffer that is reused for the
 * next one. codec/mip/packet.h decodes it. */
#ifndef SLUICE_CLIENT_CONNECTION_MIP_SESSION_H
#define SLUICE_CLIENT_CONNECTION_MIP_SESSION_H

#include <stdint.h>

#include "client/connection/session.h"
#include "codec/mip/packet.h"
#include "core/base/str.h"

struct mip_session;

/* Outcome of an exchange. */
enum mip_outcome {
    MIP_ANSWERED,         /* a regular answer */
    MIP_REFUSED,          /* an error packet */
    MIP_BUFFER_TOO_SMALL, /* the payload is larger than the caller's buffer and was dropped */
};

/* Returns: NULL when out of memory. `max_answer_bytes` bounds the payload of an answer. */
struct mip_session *mip_session_new(uint64_t max_answer_bytes);
void mip_session_free(struct mip_session *session);
struct session *mip_session_base(struct mip_session *session);

/* Where the payloads of the next answers are received that have no buffer of the caller; NULL: the
 * session's own block. The block must stay until the exchange is done; its owner frees it. */
void mip_session_set_block(struct mip_session *session, struct answer_block *block);
/* (MIP, "Ping") */
void mip_session_begin_ping(struct mip_session *session);
/* Prepares an inference whose payload has `n_bytes` (mip_infer_size). `buffer`, of
 * `buffer_bytes`, receives the payload of the answer; NULL: the block. `infer`,
 * its items and the buffer must stay until the exchange is done. Returns: ST_NO_MEMORY. (MIP,
 * "Inference") */
enum status mip_session_begin_infer(struct mip_session *session, const struct mip_infer *infer,
                                    uint32_t n_bytes, void *buffer, size_t buffer_bytes,
                                    struct error *err) SLUICE_MUST_USE;

/* The result of a completed exchange, until the next begin. */
enum mip_outcome mip_session_outcome(const struct mip_session *session);
/* The error's code, if MIP_REFUSED; it may be one that the protocol does not define. */
unsigned mip_session_error(const struct mip_session *session);
/* The payload's size in the header. */
uint32_t mip_session_payload_bytes(const struct mip_session *session);
/* The payload, if MIP_ANSWERED. */
struct str mip_session_payload(const struct mip_session *session);

#endif
