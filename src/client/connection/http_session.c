/* The HTTP exchange: sent pieces, the parsed head, and the body's buffer. */
#include "client/connection/http_session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/http1/response.h"
#include "core/base/num.h"

/* Heads and chunked bodies are received into a scratch buffer first; a body of known length is
 * received in place. */
enum { SCRATCH_BYTES = 16384, BODY_ALIGNMENT = 64 };

enum http_state {
    HTTP_IDLE, /* before the first exchange */
    HTTP_HEAD, /* waiting for the answer's head */
    HTTP_BODY, /* receiving the body */
    HTTP_DONE, /* the answer is complete */
};

struct http_session {
    struct session session;
    enum http_state state;
    struct http1_response *response;
    uint64_t max_answer_bytes;
    struct http_message message;
    size_t n_pieces_sent;
    size_t n_bytes_sent;             /* of the next piece */
    bool dropped;                    /* the rest of the message can't be sent */
    bool leftover;                   /* bytes followed the answer */
    struct answer_block own, *block; /* where the body is received; reused by the next exchange */
    size_t body_offset;              /* unused bytes at its start, for alignment */
    size_t n_body;
    size_t n_taken;    /* streaming: bytes of it that the caller has taken */
    bool streams;      /* the caller takes the body while it arrives */
    bool is_streaming; /* and it does */
    size_t n_expected; /* body size if known; else 0 */
    bool in_place;     /* the next bytes are received into the block */
    char scratch[SCRATCH_BYTES];
};

static const struct session_ops http_ops;

static struct http_session *self_of(struct session *session) {
    return (struct http_session *)session; /* its first member */
}

struct http_session *http_session_new(uint64_t max_answer_bytes) {
    struct http_session *session = calloc(1, sizeof(*session));
    if (!session) {
        return NULL;
    }
    session->session.ops = &http_ops;
    session->block = &session->own;
    session->max_answer_bytes = max_answer_bytes < SIZE_MAX / 4 ? max_answer_bytes : SIZE_MAX / 4;
    session->response = http1_response_new();
    if (!session->response) {
        free(session);
        return NULL;
    }
    return session;
}

void http_session_free(struct http_session *session) {
    if (!session) {
        return;
    }
    http1_response_free(session->response);
    free(session->own.data);
    free(session);
}

struct session *http_session_base(struct http_session *session) {
    return &session->session;
}

void http_session_set_block(struct http_session *session, struct answer_block *block) {
    session->block = block ? block : &session->own;
}

void http_session_begin(struct http_session *session, struct http_message message) {
    session->message = message;
    session->streams = false;
    http_ops.restart(&session->session);
}

static void restart(struct session *session) {
    struct http_session *self = self_of(session);
    *session = (struct session){.ops = &http_ops};
    self->n_pieces_sent = self->n_bytes_sent = 0;
    self->leftover = self->dropped = false;
    self->body_offset = self->n_body = self->n_expected = self->n_taken = 0;
    self->in_place = self->is_streaming = false;
    http1_response_begin(self->response, false);
    self->state = HTTP_HEAD;
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t output(struct session *session, struct iovec *out, size_t max) {
    const struct http_session *self = self_of(session);
    size_t n = 0, skip = self->n_bytes_sent;
    for (size_t i = self->n_pieces_sent; !self->dropped && i < self->message.n_pieces && n < max;
         i++) {
        const struct piece *piece = &self->message.pieces[i];
        if (piece->n_bytes > skip) {
            out[n++] = (struct iovec){(char *)(uintptr_t)piece->data + skip, piece->n_bytes - skip};
        }
        skip = 0;
    }
    return n;
}

static void sent(struct session *session, size_t n_bytes) {
    struct http_session *self = self_of(session);
    self->n_bytes_sent += n_bytes;
    while (self->n_pieces_sent < self->message.n_pieces) {
        size_t n_piece = self->message.pieces[self->n_pieces_sent].n_bytes;
        if (self->n_bytes_sent < n_piece) {
            return;
        }
        self->n_bytes_sent -= n_piece;
        self->n_pieces_sent++;
    }
    assert(self->n_bytes_sent == 0);
}

static void drop_output(struct session *session) {
    self_of(session)->dropped = true;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Makes capacity for `n_bytes` of body in total. */
static enum status reserve(struct http_session *session, uint64_t n_bytes, struct error *err) {
    if (n_bytes > session->max_answer_bytes && !session->is_streaming) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the answer has %" PRIu64 " bytes or more, and %" PRIu64
                         " is the limit (max_answer_bytes, --max-answer-size)",
                         n_bytes, session->max_answer_bytes);
    }
    size_t needed = (size_t)n_bytes + session->body_offset;
    if (needed <= session->block->n_bytes) {
        return ST_OK;
    }
    /* Growth by half bounds the copies of a body of unknown length. */
    size_t size = session->n_expected > 0 ? needed : needed + needed / 2 + SCRATCH_BYTES;
    size = (size + BODY_ALIGNMENT - 1) / BODY_ALIGNMENT * BODY_ALIGNMENT;
    char *block = aligned_alloc(BODY_ALIGNMENT, size);
    if (!block) {
        return error_no_memory(err, "an answer of %zu bytes", size);
    }
    if (session->n_body > 0) {
        memcpy(block + session->body_offset, session->block->data + session->body_offset,
               session->n_body);
    }
    free(session->block->data);
    *session->block = (struct answer_block){block, size};
    return ST_OK;
}

/* The head is complete: choose the body's alignment. */
static enum status finish_head(struct http_session *session, struct error *err) {
    uint64_t length = 0, n_json = 0;
    struct str value;
    if (http1_response_find(session->response, "Inference-Header-Content-Length", &value) == 1 &&
        num_parse_u64(value, &n_json)) {
        session->body_offset =
            (size_t)((BODY_ALIGNMENT - n_json % BODY_ALIGNMENT) % BODY_ALIGNMENT);
    }
    session->state = HTTP_BODY;
    session->is_streaming = session->streams && http1_response_status(session->response) == 200;
    if (session->is_streaming) {
        return ST_OK;
    }
    if (!http1_response_content_length(session->response, &length) || length == 0) {
        return ST_OK;
    }
    session->n_expected = length <= SIZE_MAX / 2 ? (size_t)length : SIZE_MAX / 2;
    return reserve(session, length, err);
}

static enum status append_body(struct http_session *session, struct str piece, struct error *err) {
    if (session->n_taken > 0) { /* moves the rest to the beginning of the block */
        char *body = session->block->data + session->body_offset;
        session->n_body -= session->n_taken;
        memmove(body, body + session->n_taken, session->n_body);
        session->n_taken = 0;
    }
    if (!session->in_place) {
        enum status status = reserve(session, (uint64_t)session->n_body + piece.len, err);
        if (status != ST_OK) {
            return status;
        }
        memcpy(session->block->data + session->body_offset + session->n_body, piece.ptr, piece.len);
    }
    session->n_body += piece.len;
    return ST_OK;
}

/* The answer is complete. After a partly sent request the connection can't be reused. */
static void finish(struct http_session *session) {
    session->state = HTTP_DONE;
    session->session.done = session->session.outcome_known = true;
    session->session.reusable = !session->leftover && !session->dropped &&
                                session->n_pieces_sent == session->message.n_pieces &&
                                http1_response_keeps_alive(session->response);
}

static enum status parse_bytes(struct http_session *session, struct str data, struct error *err) {
    enum http1_response_event event = HTTP1_RESPONSE_MORE;
    enum status status = ST_OK;
    do {
        struct str piece = {0};
        status = http1_response_step(session->response, &data, &event, &piece, err);
        if (status == ST_OK && event == HTTP1_RESPONSE_HEAD) {
            status = finish_head(session, err);
        }
        if (status == ST_OK && event == HTTP1_RESPONSE_BODY) {
            status = append_body(session, piece, err);
        }
    } while (status == ST_OK && event != HTTP1_RESPONSE_MORE && event != HTTP1_RESPONSE_DONE);
    if (status == ST_OK && event == HTTP1_RESPONSE_DONE) {
        session->leftover = data.len > 0;
        finish(session);
    }
    return status;
}

static size_t input(struct session *session, struct iovec out[SESSION_MAX_INPUT_PIECES]) {
    struct http_session *self = self_of(session);
    assert(self->state == HTTP_HEAD || self->state == HTTP_BODY);
    self->in_place = self->state == HTTP_BODY && self->n_expected > self->n_body;
    if (self->in_place) {
        out[0] = (struct iovec){self->block->data + self->body_offset + self->n_body,
                                self->n_expected - self->n_body};
    } else {
        out[0] = (struct iovec){self->scratch, sizeof(self->scratch)};
    }
    return 1;
}

static enum status received(struct session *session, size_t n_bytes, struct error *err) {
    struct http_session *self = self_of(session);
    const char *at =
        self->in_place ? self->block->data + self->body_offset + self->n_body : self->scratch;
    session->answered = true;
    return parse_bytes(self, str_make(at, n_bytes), err);
}

static enum status closed(struct session *session, struct error *err) {
    struct http_session *self = self_of(session);
    enum status status = http1_response_eof(self->response, err);
    if (status == ST_OK) {
        finish(self);
        return ST_OK;
    }
    if (!session->answered) {
        status = ST_IO;
        if (err) {
            err->status = status;
        }
    }
    return status;
}

static const struct session_ops http_ops = {
    .restart = restart,
    .output = output,
    .sent = sent,
    .drop_output = drop_output,
    .input = input,
    .received = received,
    .closed = closed,
};

/* ---- the answer ------------------------------------------------------------------------------ */

int http_session_status(const struct http_session *session) {
    return http1_response_status(session->response);
}

size_t http_session_find(const struct http_session *session, const char *name, struct str *value) {
    return http1_response_find(session->response, name, value);
}

size_t http_session_n_fields(const struct http_session *session) {
    return http1_response_n_fields(session->response);
}

void http_session_field(const struct http_session *session, size_t index, struct str *name,
                        struct str *value) {
    http1_response_field(session->response, index, name, value);
}

struct str http_session_body(const struct http_session *session) {
    const char *data = session->block->data;
    return str_make(data ? data + session->body_offset + session->n_taken : "",
                    session->n_body - session->n_taken);
}

/* ---- a body that is taken while it arrives --------------------------------------------------- */

void http_session_set_streams(struct http_session *session) {
    session->streams = true;
}

void http_session_take(struct http_session *session, size_t n_bytes) {
    assert(session->is_streaming && n_bytes <= session->n_body - session->n_taken);
    session->n_taken += n_bytes;
}

bool http_session_is_streaming(const struct http_session *session) {
    return session->is_streaming;
}
