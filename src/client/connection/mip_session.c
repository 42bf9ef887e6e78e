/* The MIP exchange. Items are sent without a copy; the header of the answer is checked before
 * memory is allocated for the payload. */
#include "client/connection/mip_session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending a packet ------------------------------------------------------------------------ */

enum {
    MIP_OUTPUT_FRONT_BYTES = MIP_HEADER_BYTES + MIP_COUNTS_BYTES,
    MIP_OUTPUT_ITEMS = 128, /* heads in the window */
};

/* Position in a packet. The heads of items are written into a small window when needed, so that the
 * memory does not grow with the number of items. */
struct mip_output {
    const struct mip_infer *infer; /* NULL: a ping */
    char front[MIP_OUTPUT_FRONT_BYTES];
    size_t n_front; /* bytes in `front` for this request */
    size_t n_front_sent;
    size_t next_item;   /* the first that is not completely sent */
    size_t n_item_sent; /* bytes sent of it, including its head */
    char heads[MIP_OUTPUT_ITEMS][MIP_ITEM_HEAD_BYTES];
};

/* Adds the rest of a piece after *skip bytes; *skip is reduced by the piece's size. Returns: 1,
 * or 0 if nothing is left. */
static size_t add_piece(struct iovec *out, const char *data, size_t n_bytes, size_t *skip) {
    size_t n_gone = *skip < n_bytes ? *skip : n_bytes;
    *skip -= n_gone;
    if (n_gone == n_bytes) {
        return 0;
    }
    *out = (struct iovec){(char *)(uintptr_t)data + n_gone, n_bytes - n_gone};
    return 1;
}

static size_t n_items(const struct mip_output *output) {
    return output->infer ? output->infer->n_items : 0;
}

/* Returns the next bytes in at most `max` pieces, as session_ops.output. */
static size_t mip_output_pieces(struct mip_output *output, struct iovec *out, size_t max) {
    size_t skip = output->n_front_sent;
    size_t n = add_piece(out, output->front, output->n_front, &skip);
    size_t n_ready = n_items(output) - output->next_item;
    n_ready = n_ready < MIP_OUTPUT_ITEMS ? n_ready : MIP_OUTPUT_ITEMS;
    skip = output->n_item_sent;
    for (size_t i = 0; i < n_ready && n < max; i++) {
        const struct mip_item *item = &output->infer->items[output->next_item + i];
        mip_item_head_encode(item, output->heads[i]);
        n += add_piece(out + n, output->heads[i], MIP_ITEM_HEAD_BYTES, &skip);
        if (n < max) {
            n += add_piece(out + n, item->data.ptr, item->data.len, &skip);
        }
    }
    return n;
}

static void mip_output_sent(struct mip_output *output, size_t n_bytes) {
    size_t n_front = output->n_front - output->n_front_sent;
    n_front = n_bytes < n_front ? n_bytes : n_front;
    output->n_front_sent += n_front;
    output->n_item_sent += n_bytes - n_front;
    while (output->next_item < n_items(output)) {
        size_t n_item = MIP_ITEM_HEAD_BYTES + output->infer->items[output->next_item].data.len;
        if (output->n_item_sent < n_item) {
            return;
        }
        output->n_item_sent -= n_item;
        output->next_item++;
    }
    assert(output->n_item_sent == 0);
}

enum {
    FIRST_BLOCK_BYTES = 16384, /* small answers are received together with their header */
    DROP_BYTES = 16384,
    MAX_DROP_BYTES = 1 << 20, /* a larger payload is not drained; the connection is closed */
};

enum mip_state {
    MIP_IDLE,    /* before the first exchange */
    MIP_HEADER,  /* waiting for the answer's header; payload bytes may come with it */
    MIP_PAYLOAD, /* receiving the payload */
    MIP_DROP,    /* draining an unneeded payload */
    MIP_DONE,    /* the answer is complete */
};

struct mip_session {
    struct session session;
    enum mip_state state;
    enum mip_outcome outcome;
    uint64_t max_answer_bytes;

    struct mip_output output;
    bool dropped; /* the rest of the request can't be sent */

    char header_bytes[MIP_HEADER_BYTES];
    size_t n_header;
    struct mip_header header;
    bool leftover; /* bytes followed the answer */
    char *payload; /* destination: the caller's buffer or the block */
    size_t payload_capacity;
    size_t n_payload;                /* bytes received, or drained */
    bool uses_block;                 /* the destination is the block */
    struct answer_block own, *block; /* reused by the next exchange */
    char drop[DROP_BYTES];
};

static const struct session_ops mip_ops;

static struct mip_session *self_of(struct session *session) {
    return (struct mip_session *)session; /* its first member */
}

/* The only setter of the state. */
static void set_state(struct mip_session *self, enum mip_state state) {
    assert(state >= self->state || state == MIP_HEADER);
    self->state = state;
}

struct mip_session *mip_session_new(uint64_t max_answer_bytes) {
    struct mip_session *session = calloc(1, sizeof(*session));
    if (session) {
        session->session.ops = &mip_ops;
        session->block = &session->own;
        session->max_answer_bytes = max_answer_bytes;
    }
    return session;
}

void mip_session_free(struct mip_session *session) {
    if (session) {
        free(session->own.data);
        free(session);
    }
}

struct session *mip_session_base(struct mip_session *session) {
    return &session->session;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Grows the block; its contents are kept. */
static enum status reserve(struct mip_session *self, size_t n_bytes, struct error *err) {
    if (n_bytes > self->block->n_bytes) {
        char *data = realloc(self->block->data, n_bytes);
        if (!data) {
            return error_no_memory(err, "an answer of %zu bytes", n_bytes);
        }
        *self->block = (struct answer_block){data, n_bytes};
    }
    self->payload = self->block->data;
    self->payload_capacity = self->block->n_bytes;
    return ST_OK;
}

static void restart(struct session *session) {
    struct mip_session *self = self_of(session);
    *session = (struct session){.ops = &mip_ops};
    self->output.n_front_sent = self->output.next_item = self->output.n_item_sent = 0;
    self->n_header = self->n_payload = 0;
    self->dropped = self->leftover = false;
    self->outcome = MIP_ANSWERED;
    set_state(self, MIP_HEADER);
}

void mip_session_set_block(struct mip_session *session, struct answer_block *block) {
    session->block = block ? block : &session->own;
}

void mip_session_begin_ping(struct mip_session *session) {
    const struct mip_header header = {
        .version = MIP_VERSION, .kind = MIP_PING, .subtype = MIP_REQUEST};
    session->output.infer = NULL;
    session->output.n_front = MIP_HEADER_BYTES;
    mip_header_encode(&header, session->output.front);
    session->payload_capacity = 0;
    restart(&session->session);
}

enum status mip_session_begin_infer(struct mip_session *session, const struct mip_infer *infer,
                                    uint32_t n_bytes, void *buffer, size_t buffer_bytes,
                                    struct error *err) {
    session->output.infer = infer;
    session->output.n_front = MIP_OUTPUT_FRONT_BYTES;
    mip_infer_head_encode(infer, false, n_bytes, session->output.front);
    session->uses_block = buffer == NULL;
    session->payload = buffer;
    session->payload_capacity = buffer_bytes;
    restart(&session->session);
    return session->uses_block ? reserve(session, FIRST_BLOCK_BYTES, err) : ST_OK;
}

static bool is_ping(const struct mip_session *self) {
    return self->output.infer == NULL;
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t output(struct session *session, struct iovec *out, size_t max) {
    struct mip_session *self = self_of(session);
    return self->dropped ? 0 : mip_output_pieces(&self->output, out, max);
}

static void sent(struct session *session, size_t n_bytes) {
    mip_output_sent(&self_of(session)->output, n_bytes);
}

static void drop_output(struct session *session) {
    self_of(session)->dropped = true;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void finish(struct mip_session *self, bool whole) {
    set_state(self, MIP_DONE);
    self->session.done = self->session.outcome_known = true;
    const struct mip_output *output = &self->output;
    bool is_sent = output->n_front_sent == output->n_front && output->next_item == n_items(output);
    self->session.reusable = whole && !self->leftover && !self->dropped && is_sent;
}

/* Sets the outcome. Drains the payload, of which `n_bytes` have come, unless it is too large. */
static enum status set_outcome(struct mip_session *self, enum mip_outcome outcome, size_t n_bytes) {
    self->outcome = outcome;
    self->session.outcome_known = true;
    self->n_payload = n_bytes;
    if (n_bytes >= self->header.n_bytes) {
        self->leftover = n_bytes > self->header.n_bytes;
        finish(self, true);
    } else if (self->header.n_bytes - n_bytes > MAX_DROP_BYTES) {
        finish(self, false);
    } else {
        set_state(self, MIP_DROP);
    }
    return ST_OK;
}

static enum status error_bad_header(const struct mip_session *self, struct error *err) {
    const struct mip_header *header = &self->header;
    if (memcmp(self->header_bytes, "HTTP/1.", 7) == 0) {
        return error_set(err, ST_BAD_ANSWER, "the server's answer is not MIP but HTTP");
    }
    if (header->version != MIP_VERSION) {
        return error_set(err, ST_BAD_ANSWER,
                         "the server's answer is not MIP version %d: its first byte is %u",
                         MIP_VERSION, header->version);
    }
    return error_set(err, ST_BAD_ANSWER,
                     "the server's answer: expected kind %d and subtype %d, or kind %d, got kind "
                     "%u and subtype %u",
                     is_ping(self) ? MIP_PING : MIP_INFER, MIP_RESPONSE, MIP_ERROR, header->kind,
                     header->subtype);
}

static enum status check_size(const struct mip_session *self, struct error *err) {
    uint32_t n_bytes = self->header.n_bytes;
    if (is_ping(self) && n_bytes > 0) {
        return error_set(err, ST_BAD_ANSWER,
                         "the server's answer to a ping: expected no payload, got %" PRIu32
                         " bytes of it",
                         n_bytes);
    }
    if (!is_ping(self) && n_bytes < MIP_COUNTS_BYTES) {
        return error_set(err, ST_BAD_ANSWER,
                         "the server's answer: expected a payload of at least %d bytes, got "
                         "%" PRIu32,
                         MIP_COUNTS_BYTES, n_bytes);
    }
    if (n_bytes > self->max_answer_bytes) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the answer has %" PRIu32 " bytes, and %" PRIu64
                         " is the limit (max_answer_bytes, --max-answer-size)",
                         n_bytes, self->max_answer_bytes);
    }
    return ST_OK;
}

/* The header is complete, and the first `n_bytes` of the payload are received. (MIP, "Errors") */
static enum status finish_header(struct mip_session *self, size_t n_bytes, struct error *err) {
    mip_header_decode(self->header_bytes, &self->header);
    const struct mip_header *header = &self->header;
    bool version = header->version == MIP_VERSION;
    if (version && header->kind == MIP_ERROR) {
        return set_outcome(self, MIP_REFUSED, n_bytes);
    }
    if (!version || header->kind != (is_ping(self) ? MIP_PING : MIP_INFER) ||
        header->subtype != MIP_RESPONSE) {
        return error_bad_header(self, err);
    }
    enum status status = check_size(self, err);
    if (status != ST_OK) {
        return status;
    }
    if (!is_ping(self) && !self->uses_block && header->n_bytes > self->payload_capacity) {
        return set_outcome(self, MIP_BUFFER_TOO_SMALL, n_bytes);
    }
    if (n_bytes >= header->n_bytes) {
        return set_outcome(self, MIP_ANSWERED, n_bytes);
    }
    self->n_payload = n_bytes;
    set_state(self, MIP_PAYLOAD);
    return self->uses_block ? reserve(self, header->n_bytes, err) : ST_OK;
}

static size_t input(struct session *session, struct iovec out[SESSION_MAX_INPUT_PIECES]) {
    struct mip_session *self = self_of(session);
    assert(self->state >= MIP_HEADER && self->state < MIP_DONE);
    size_t n_left = self->header.n_bytes - self->n_payload;
    if (self->state == MIP_PAYLOAD) {
        out[0] = (struct iovec){self->payload + self->n_payload, n_left};
        return 1;
    }
    if (self->state == MIP_DROP) {
        out[0] = (struct iovec){self->drop, n_left < DROP_BYTES ? n_left : DROP_BYTES};
        return 1;
    }
    out[0] = (struct iovec){self->header_bytes + self->n_header, MIP_HEADER_BYTES - self->n_header};
    out[1] = (struct iovec){self->payload, self->payload_capacity};
    return self->payload_capacity > 0 ? 2 : 1;
}

static enum status received(struct session *session, size_t n_bytes, struct error *err) {
    struct mip_session *self = self_of(session);
    session->answered = true;
    if (self->state != MIP_HEADER) {
        self->n_payload += n_bytes;
        if (self->n_payload == self->header.n_bytes) {
            finish(self, true);
        }
        return ST_OK;
    }
    size_t n_header = MIP_HEADER_BYTES - self->n_header;
    n_header = n_bytes < n_header ? n_bytes : n_header;
    self->n_header += n_header;
    return self->n_header == MIP_HEADER_BYTES ? finish_header(self, n_bytes - n_header, err)
                                              : ST_OK;
}

static enum status closed(struct session *session, struct error *err) {
    struct mip_session *self = self_of(session);
    if (session->outcome_known) {
        finish(self, false);
        return ST_OK;
    }
    if (!session->answered) {
        return error_set(err, ST_IO, "the server closed the connection without an answer");
    }
    return error_set(err, ST_BAD_ANSWER,
                     "the server closed the connection in the middle of its answer");
}

static const struct session_ops mip_ops = {
    .restart = restart,
    .output = output,
    .sent = sent,
    .drop_output = drop_output,
    .input = input,
    .received = received,
    .closed = closed,
};

/* ---- the answer ------------------------------------------------------------------------------ */

enum mip_outcome mip_session_outcome(const struct mip_session *session) {
    return session->outcome;
}

unsigned mip_session_error(const struct mip_session *session) {
    return session->header.subtype;
}

uint32_t mip_session_payload_bytes(const struct mip_session *session) {
    return session->header.n_bytes;
}

struct str mip_session_payload(const struct mip_session *session) {
    return str_make(session->payload, session->header.n_bytes);
}
