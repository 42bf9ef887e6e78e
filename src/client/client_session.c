/* The exchange: what was sent, what was read, and where the body lies. */
#include "client/client_session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "wire/http1_response.h"

/* Heads and chunked bodies are received here first; a body whose length is known is not. */
enum { SCRATCH_BYTES = 16384, BODY_ALIGNMENT = 64 };

enum session_state {
    SESSION_IDLE, /* before the first exchange */
    SESSION_HEAD, /* the answer's head is awaited */
    SESSION_BODY, /* its body */
    SESSION_DONE, /* the answer is complete */
};

struct client_session {
    enum session_state state;
    struct http1_response *response;
    uint64_t max_answer_bytes;
    struct client_message message;
    size_t n_pieces_sent;
    size_t n_bytes_sent; /* of the piece that is next */
    bool leftover;       /* bytes came behind the answer */
    char *block;         /* kept between exchanges */
    size_t block_bytes;
    size_t lead; /* bytes left free at its beginning, for alignment */
    size_t n_body;
    size_t n_expected; /* of the body, when its length is known; else 0 */
    bool in_place;     /* the next bytes are received in the block itself */
    char scratch[SCRATCH_BYTES];
};

struct client_session *client_session_new(uint64_t max_answer_bytes) {
    struct client_session *session = calloc(1, sizeof(*session));
    if (!session) {
        return NULL;
    }
    session->max_answer_bytes = max_answer_bytes < SIZE_MAX / 4 ? max_answer_bytes : SIZE_MAX / 4;
    session->response = http1_response_new();
    if (!session->response) {
        free(session);
        return NULL;
    }
    return session;
}

void client_session_free(struct client_session *session) {
    if (!session) {
        return;
    }
    http1_response_free(session->response);
    free(session->block);
    free(session);
}

void client_session_begin(struct client_session *session, struct client_message message) {
    session->message = message;
    session->n_pieces_sent = session->n_bytes_sent = 0;
    session->leftover = false;
    session->lead = session->n_body = session->n_expected = 0;
    session->in_place = false;
    http1_response_begin(session->response, false);
    session->state = SESSION_HEAD;
}

size_t client_session_output(const struct client_session *session, struct iovec *out, size_t max) {
    size_t n = 0, skip = session->n_bytes_sent;
    for (size_t i = session->n_pieces_sent; i < session->message.n_pieces && n < max; i++) {
        const struct piece *piece = &session->message.pieces[i];
        if (piece->n_bytes > skip) {
            out[n++] = (struct iovec){(char *)(uintptr_t)piece->data + skip, piece->n_bytes - skip};
        }
        skip = 0;
    }
    return n;
}

void client_session_sent(struct client_session *session, size_t n_bytes) {
    session->n_bytes_sent += n_bytes;
    while (session->n_pieces_sent < session->message.n_pieces) {
        size_t n_piece = session->message.pieces[session->n_pieces_sent].n_bytes;
        if (session->n_bytes_sent < n_piece) {
            return;
        }
        session->n_bytes_sent -= n_piece;
        session->n_pieces_sent++;
    }
    assert(session->n_bytes_sent == 0);
}

void client_session_drop_output(struct client_session *session) {
    session->message.n_pieces = session->n_pieces_sent;
    session->n_bytes_sent = 0;
    session->leftover = true; /* the server will not find the next request behind half of this
                                 one */
}

/* Makes room for `n_bytes` of body in all. */
static enum status reserve(struct client_session *session, uint64_t n_bytes, struct error *err) {
    if (n_bytes > session->max_answer_bytes) {
        return error_set(err, ST_BAD_ANSWER,
                         "the answer has %" PRIu64 " bytes or more, and %" PRIu64
                         " is the limit (max_answer_bytes, --max-answer-size)",
                         n_bytes, session->max_answer_bytes);
    }
    size_t needed = (size_t)n_bytes + session->lead;
    if (needed <= session->block_bytes) {
        return ST_OK;
    }
    /* A block by halves larger, so that a body of unknown length is copied few times. */
    size_t size = session->n_expected > 0 ? needed : needed + needed / 2 + SCRATCH_BYTES;
    size = (size + BODY_ALIGNMENT - 1) / BODY_ALIGNMENT * BODY_ALIGNMENT;
    char *block = aligned_alloc(BODY_ALIGNMENT, size);
    if (!block) {
        return error_set(err, ST_NO_MEMORY, "no memory for an answer of %zu bytes", size);
    }
    if (session->n_body > 0) {
        memcpy(block + session->lead, session->block + session->lead, session->n_body);
    }
    free(session->block);
    session->block = block;
    session->block_bytes = size;
    return ST_OK;
}

/* The head is complete: the body's place is chosen. */
static enum status take_head(struct client_session *session, struct error *err) {
    uint64_t length = 0, n_json = 0;
    struct str value;
    if (http1_response_find(session->response, "Inference-Header-Content-Length", &value) == 1 &&
        num_parse_u64(value, &n_json)) {
        session->lead = (size_t)((BODY_ALIGNMENT - n_json % BODY_ALIGNMENT) % BODY_ALIGNMENT);
    }
    session->state = SESSION_BODY;
    if (!http1_response_length(session->response, &length) || length == 0) {
        return ST_OK;
    }
    session->n_expected = length <= SIZE_MAX / 2 ? (size_t)length : SIZE_MAX / 2;
    return reserve(session, length, err);
}

static enum status take_body(struct client_session *session, struct str piece, struct error *err) {
    if (!session->in_place) {
        enum status status = reserve(session, (uint64_t)session->n_body + piece.len, err);
        if (status != ST_OK) {
            return status;
        }
        memcpy(session->block + session->lead + session->n_body, piece.ptr, piece.len);
    }
    session->n_body += piece.len;
    return ST_OK;
}

static enum status take(struct client_session *session, struct str data, struct error *err) {
    enum http1_event event = HTTP1_MORE;
    enum status status = ST_OK;
    do {
        struct str piece = {0};
        status = http1_response_step(session->response, &data, &event, &piece, err);
        if (status == ST_OK && event == HTTP1_HEAD) {
            status = take_head(session, err);
        }
        if (status == ST_OK && event == HTTP1_BODY) {
            status = take_body(session, piece, err);
        }
    } while (status == ST_OK && event != HTTP1_MORE && event != HTTP1_DONE);
    if (status == ST_OK && event == HTTP1_DONE) {
        session->state = SESSION_DONE;
        session->leftover = session->leftover || data.len > 0;
    }
    return status;
}

void client_session_input(struct client_session *session, char **at, size_t *n_bytes) {
    assert(session->state == SESSION_HEAD || session->state == SESSION_BODY);
    session->in_place = session->state == SESSION_BODY && session->n_expected > session->n_body;
    *at = session->in_place ? session->block + session->lead + session->n_body : session->scratch;
    *n_bytes = session->in_place ? session->n_expected - session->n_body : sizeof(session->scratch);
}

enum status client_session_received(struct client_session *session, size_t n_bytes,
                                    struct error *err) {
    const char *at =
        session->in_place ? session->block + session->lead + session->n_body : session->scratch;
    return take(session, str_make(at, n_bytes), err);
}

enum status client_session_closed(struct client_session *session, struct error *err) {
    enum status status = http1_response_end(session->response, err);
    if (status == ST_OK) {
        session->state = SESSION_DONE;
    }
    return status;
}

bool client_session_is_done(const struct client_session *session) {
    return session->state == SESSION_DONE;
}

bool client_session_is_unanswered(const struct client_session *session) {
    return !http1_response_has_begun(session->response);
}

bool client_session_keeps_alive(const struct client_session *session) {
    return !session->leftover && session->n_pieces_sent == session->message.n_pieces &&
           http1_response_keeps_alive(session->response);
}

int client_session_status(const struct client_session *session) {
    return http1_response_status(session->response);
}

size_t client_session_find(const struct client_session *session, const char *name,
                           struct str *value) {
    return http1_response_find(session->response, name, value);
}

struct str client_session_body(const struct client_session *session) {
    return str_make(session->block ? session->block + session->lead : "", session->n_body);
}
