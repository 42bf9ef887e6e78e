/* The proxy's side of ext-proc: a ProcessingRequest written, a ProcessingResponse read. For who
 * plays Envoy: load generators, tests and fuzzers. Sans I/O.
 *
 * Field numbers are those of proto/ext_proc.proto. */
#ifndef SLUICE_LIB_EXT_PROC_CLIENT_H
#define SLUICE_LIB_EXT_PROC_CLIENT_H

#include "codec/ext_proc/response.h"

/* What is asked, of the kind that `kind` says: headers and trailers have `headers`, bodies the
 * rest. */
struct ext_proc_client_request {
    enum ext_proc_kind kind;
    const struct ext_proc_header *headers; /* written as raw_value */
    size_t n_headers;
    struct str body;
    bool end_of_stream, end_without_message, is_compressed;
    bool observability_mode;
    const struct ext_proc_config *config; /* NULL: none */
    bool has_metadata;                    /* metadata_context is there, if empty */
    const struct ext_proc_namespace *metadata;
    size_t n_metadata;
    const struct ext_proc_namespace *attributes;
    size_t n_attributes;
};

/* Appends the message, fields in the order of their numbers, as Envoy writes them. */
void ext_proc_client_request_encode(struct buf *out, const struct ext_proc_client_request *request);

struct ext_proc_client_response {
    enum ext_proc_kind kind; /* EXT_PROC_NONE where `is_immediate`, and of what is unknown */
    bool is_immediate;
    struct str mutation; /* of headers, for the functions below */
    bool clear_route_cache, continue_and_replace;
    enum ext_proc_body_mutation body_mutation;
    struct str body; /* an immediate reply's, too */
    bool end_of_stream, end_without_message, is_compressed;
    uint32_t http_status, grpc_status; /* of an immediate reply; 0: none */
    struct str details;
    struct str metadata; /* dynamic_metadata, for ext_proc_client_response_metadata_find; empty
                            where there is none */
    bool has_mode_override;
    struct ext_proc_processing_mode mode_override; /* mode_override */
};

/* Decodes. Returns: as ext_proc_request_decode. Owns: views of `message`. */
enum status ext_proc_client_response_decode(struct str message,
                                            struct ext_proc_client_response *out, struct error *err)
    __attribute__((warn_unused_result));
/* Go through the headers set and removed, begun with pb_read(reply.mutation). Returns: false behind
 * the last. */
bool ext_proc_set_header_next(struct pb_reader *mutation, struct ext_proc_header *out);
bool ext_proc_removed_header_next(struct pb_reader *mutation, struct str *out);
/* What dynamic_metadata[space][key] is. */
struct ext_proc_value ext_proc_client_response_metadata_find(
    const struct ext_proc_client_response *response, struct str space, struct str key);

#endif
