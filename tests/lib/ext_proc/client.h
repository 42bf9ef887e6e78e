/* The proxy's side of ext-proc: a ProcessingRequest written, a ProcessingResponse read. For who
 * plays Envoy: load generators, tests and fuzzers. Sans I/O.
 *
 * Field numbers are those of proto/ext_proc.proto. */
#ifndef SLUICE_LIB_EXT_PROC_CLIENT_H
#define SLUICE_LIB_EXT_PROC_CLIENT_H

#include "codec/ext_proc/answer.h"

/* What is asked, of the kind that `kind` says: headers and trailers have `headers`, bodies the
 * rest. */
struct ext_proc_question {
    enum ext_proc_kind kind;
    const struct ext_proc_header *headers; /* written as raw_value */
    size_t n_headers;
    struct str body;
    bool end_of_stream, end_without_message, is_compressed;
    bool observes;
    const struct ext_proc_config *config; /* NULL: none */
    bool has_metadata;                    /* metadata_context is there, if empty */
    const struct ext_proc_space *metadata;
    size_t n_metadata;
    const struct ext_proc_space *attributes;
    size_t n_attributes;
};

/* Appends the message, fields in the order of their numbers, as Envoy writes them. */
void ext_proc_question_print(struct buf *out, const struct ext_proc_question *question);

struct ext_proc_reply {
    enum ext_proc_kind kind; /* EXT_PROC_NONE where `is_immediate`, and of what is unknown */
    bool is_immediate;
    struct str mutation; /* of headers, for the functions below */
    bool clear_route_cache, replaces;
    enum ext_proc_body_change body_change;
    struct str body; /* an immediate reply's, too */
    bool end_of_stream, end_without_message, is_compressed;
    uint32_t http_status, grpc_status; /* of an immediate reply; 0: none */
    struct str details;
    struct str metadata; /* dynamic_metadata, for ext_proc_reply_find; empty where there is none */
    bool has_modes;
    struct ext_proc_modes modes; /* mode_override */
};

/* Decodes. Returns: as ext_proc_request_decode. Owns: views of `message`. */
enum status ext_proc_reply_decode(struct str message, struct ext_proc_reply *out, struct error *err)
    __attribute__((warn_unused_result));
/* Go through the headers set and removed, begun with pb_read(reply.mutation). Returns: false behind
 * the last. */
bool ext_proc_set_next(struct pb_reader *mutation, struct ext_proc_header *out);
bool ext_proc_removed_next(struct pb_reader *mutation, struct str *out);
/* What dynamic_metadata[space][key] is. */
struct ext_proc_value ext_proc_reply_find(const struct ext_proc_reply *reply, struct str space,
                                          struct str key);

#endif
