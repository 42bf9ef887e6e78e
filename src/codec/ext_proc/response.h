/* A ProcessingResponse: changes to the headers, body or trailers of a request or a response, or
 * an immediate response that ends the request. Body bytes are not copied: the message is a list
 * of pieces, some of which are the body's own.
 *
 * Clause: ext-proc, ProcessingResponse; the endpoint picker protocol, "Destination Endpoint" and
 * its constraints. Observed: which of the possible responses Envoy accepts. */
#ifndef SLUICE_CODEC_EXT_PROC_RESPONSE_H
#define SLUICE_CODEC_EXT_PROC_RESPONSE_H

#include "codec/ext_proc/request.h"
#include "core/base/arena.h"
#include "core/base/piece.h"

/* Headers to set and to remove. A header is set by raw_value alone (proxies ignore `value`,
 * which leaves the header empty), and without `append`, so that it replaces a header of that
 * name. */
struct ext_proc_mutation {
    const struct ext_proc_header *set;
    size_t n_set;
    const struct str *remove;
    size_t n_remove;
};

enum ext_proc_body_mutation {
    EXT_PROC_BODY_UNCHANGED,
    EXT_PROC_BODY_REPLACED, /* by `body`: the response to a body in mode BUFFERED */
    EXT_PROC_BODY_CLEARED,
    EXT_PROC_BODY_STREAMED_RESPONSE, /* `body` is the next part of it: only in mode FULL_DUPLEX or
                                        GRPC */
};

enum ext_proc_header_send_mode {
    EXT_PROC_SEND_DEFAULT = 0,
    EXT_PROC_SEND_YES = 1,
    EXT_PROC_SEND_SKIP = 2
};

/* How the rest of the stream is processed; every member is sent, zero is a value. */
struct ext_proc_processing_mode {
    enum ext_proc_header_send_mode request_headers, response_headers;
    enum ext_proc_body_mode request_body, response_body;
    enum ext_proc_header_send_mode request_trailers, response_trailers;
};

struct ext_proc_response {
    enum ext_proc_kind kind;          /* the request's kind; not EXT_PROC_NONE */
    struct ext_proc_mutation headers; /* for trailers: the trailers, and the only member that is
                                         sent */
    bool clear_route_cache;           /* the route depends on a header */
    bool continue_and_replace;        /* CONTINUE_AND_REPLACE; else CONTINUE */
    enum ext_proc_body_mutation body_mutation;
    const struct piece *body; /* for REPLACED and STREAMED_RESPONSE */
    size_t n_body;
    bool end_of_stream;       /* for STREAMED_RESPONSE: the last part */
    bool end_without_message; /* for STREAMED_RESPONSE, as in ext_proc_request */
    bool is_compressed;
    const struct ext_proc_namespace *metadata; /* dynamic_metadata */
    size_t n_metadata;
    const struct ext_proc_processing_mode *mode_override; /* NULL: as configured */
};

struct ext_proc_immediate {
    uint32_t http_status; /* 200 to 599: Envoy replaces others by 200 */
    uint32_t grpc_status; /* for a gRPC request, which gets `body` as grpc-message; 0: none */
    struct ext_proc_mutation headers;
    struct str body, details; /* UTF-8; details: for the proxy's log, without spaces */
    const struct ext_proc_namespace *metadata;
    size_t n_metadata;
};

/* A message as pieces, in the order of sending. */
struct ext_proc_message {
    const struct piece *pieces;
    size_t n_pieces;
    uint64_t n_bytes;
};

/* Encodes. Returns: ST_NO_MEMORY, ST_BAD_OUTPUT over 2^31 - 1 bytes. Owns: in `arena`, but the
 * bytes of `body`, which must stay until the message is sent. */
enum status ext_proc_response_encode(struct arena *arena, const struct ext_proc_response *response,
                                     struct ext_proc_message *out,
                                     struct error *err) SLUICE_MUST_USE;
/* Encodes an ImmediateResponse; all of it is copied. */
enum status ext_proc_immediate_encode(struct arena *arena,
                                      const struct ext_proc_immediate *response,
                                      struct ext_proc_message *out,
                                      struct error *err) SLUICE_MUST_USE;

/* As much of a body as one EXT_PROC_BODY_STREAMED_RESPONSE should carry: a larger message may
 * exceed the proxy's limit. */
enum { EXT_PROC_MAX_CHUNK_BYTES = 62000 };

#endif
