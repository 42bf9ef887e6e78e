/* The proxy's side of ext-proc: a ProcessingRequest is encoded, a ProcessingResponse decoded.
 * For load generators, tests and fuzzers that act as Envoy. Sans I/O.
 *
 * Field numbers are those of proto/ext_proc.proto. */
#ifndef SLUICE_LIB_EXT_PROC_CLIENT_H
#define SLUICE_LIB_EXT_PROC_CLIENT_H

#include "codec/ext_proc/response.h"

/* A request of kind `kind`: headers and trailers use `headers`, bodies the other members. */
struct ext_proc_client_request {
    enum ext_proc_kind kind;
    const struct ext_proc_header *headers; /* encoded as raw_value */
    size_t n_headers;
    struct str body;
    bool end_of_stream, end_without_message, is_compressed;
    bool observability_mode;
    const struct ext_proc_config *config; /* NULL: none */
    bool has_metadata;                    /* metadata_context is present, possibly empty */
    const struct ext_proc_namespace *metadata;
    size_t n_metadata;
    const struct ext_proc_namespace *attributes;
    size_t n_attributes;
};

/* Appends the message, fields in the order of their numbers, as Envoy does. */
void ext_proc_client_request_encode(struct buf *out, const struct ext_proc_client_request *request);

struct ext_proc_client_response {
    enum ext_proc_kind kind; /* EXT_PROC_NONE if `is_immediate`, and for unknown kinds */
    bool is_immediate;
    struct str mutation; /* the headers, for the functions below */
    bool clear_route_cache, continue_and_replace;
    enum ext_proc_body_mutation body_mutation;
    struct str body; /* also of an immediate response */
    bool end_of_stream, end_without_message, is_compressed;
    uint32_t http_status, grpc_status; /* of an immediate response; 0: none */
    struct str details;
    struct str metadata; /* dynamic_metadata, for ext_proc_client_response_metadata_find; may be
                            empty */
    bool has_mode_override;
    struct ext_proc_processing_mode mode_override; /* mode_override */
};

/* Decodes. Returns: as ext_proc_request_decode. Owns: views of `message`. */
enum status ext_proc_client_response_decode(struct str message,
                                            struct ext_proc_client_response *out, struct error *err)
    __attribute__((warn_unused_result));
/* Iterate over the headers set and removed, starting with pb_read(reply.mutation). Returns:
 * false after the last. */
bool ext_proc_set_header_next(struct pb_reader *mutation, struct ext_proc_header *out);
bool ext_proc_removed_header_next(struct pb_reader *mutation, struct str *out);
/* Returns: dynamic_metadata[space][key]. */
struct ext_proc_value ext_proc_client_response_metadata_find(
    const struct ext_proc_client_response *response, struct str space, struct str key);

#endif
