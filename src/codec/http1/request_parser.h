/* The parts of a request as llhttp finds them: where target, version and fields lie, and the pieces
 * of a chunked body. For request.c, which says what they mean. It refuses to keep bytes: a
 * part is an offset from the first byte of the request. */
#ifndef SLUICE_CODEC_HTTP1_REQUEST_PARSER_H
#define SLUICE_CODEC_HTTP1_REQUEST_PARSER_H

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct http1_span {
    uint32_t at;
    uint32_t len;
};

struct http1_field_span {
    struct http1_span name;
    struct http1_span value;
};

struct http1_request_parser {
    llhttp_t llhttp;
    struct arena *arena; /* for the list of fields */
    const char *input;   /* what is read right now, */
    size_t input_offset; /* and its offset */
    struct http1_span target, version;
    struct http1_field_span *fields;
    size_t n_fields;
    size_t fields_cap;
    bool in_value;      /* the newest field's name is complete */
    bool in_body;       /* the head is over; fields are trailers */
    bool in_chunk;      /* its size line was read */
    bool ended;         /* the head has just ended, or the chunked body */
    bool failed;        /* a rule of ours was broken; the error says which */
    struct str body;    /* the piece of a chunk that was just found */
    size_t extra_bytes; /* of chunk extensions and trailers */
    struct error *err;  /* the caller's, while llhttp reads */
};

void http1_request_parser_init(struct http1_request_parser *self, struct arena *arena);
/* Adds bytes to a part that lies where they do. */
void http1_span_add(const struct http1_request_parser *self, struct http1_span *span,
                    const char *at, size_t len);
/* Lets llhttp read. Returns: how it ended: HPE_OK when all was read, HPE_PAUSED at an end or with a
 * piece of the body, else an error (with `failed`: `err` has it already); *n is what was
 * consumed. */
llhttp_errno_t http1_request_parser_feed(struct http1_request_parser *self, struct str data,
                                         size_t *n, struct error *err);

#endif
