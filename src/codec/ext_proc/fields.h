/* The numbers of ext-proc's fields, and what its readers and writers share. For the ext_proc*.c
 * files only.
 *
 * proto/ext_proc.proto */
#ifndef SLUICE_CODEC_EXT_PROC_FIELDS_H
#define SLUICE_CODEC_EXT_PROC_FIELDS_H

#include "codec/ext_proc/request.h"
#include "core/base/buf.h"

/* ProcessingRequest. The members of its oneof are enum ext_proc_kind, one up. */
enum {
    EXT_PROC_F_REQUEST_KIND = 1, /* what is added to the kind */
    EXT_PROC_F_METADATA_CONTEXT = 8,
    EXT_PROC_F_ATTRIBUTES = 9,
    EXT_PROC_F_OBSERVABILITY_MODE = 10,
    EXT_PROC_F_PROTOCOL_CONFIG = 11,
    /* HttpHeaders, HttpTrailers, HeaderMap, HeaderValue */
    EXT_PROC_F_HEADERS_MAP = 1,
    EXT_PROC_F_HEADERS_END = 3,
    EXT_PROC_F_MAP_HEADER = 1,
    EXT_PROC_F_HEADER_KEY = 1,
    EXT_PROC_F_HEADER_VALUE = 2,
    EXT_PROC_F_HEADER_RAW_VALUE = 3,
    /* HttpBody, StreamedBodyResponse */
    EXT_PROC_F_BODY = 1,
    EXT_PROC_F_BODY_END = 2,
    EXT_PROC_F_BODY_END_WITHOUT_MESSAGE = 3,
    EXT_PROC_F_BODY_COMPRESSED = 4,
    /* ProtocolConfiguration */
    EXT_PROC_F_REQUEST_BODY_MODE = 1,
    EXT_PROC_F_RESPONSE_BODY_MODE = 2,
    EXT_PROC_F_WITHOUT_WAITING = 3,
};

/* ProcessingResponse. The members of its oneof are enum ext_proc_kind as it is, and: */
enum {
    EXT_PROC_F_IMMEDIATE = 7,
    EXT_PROC_F_DYNAMIC_METADATA = 8,
    EXT_PROC_F_MODE_OVERRIDE = 9,
    /* HeadersResponse, BodyResponse: a CommonResponse; TrailersResponse: a HeaderMutation */
    EXT_PROC_F_RESPONSE = 1,
    /* CommonResponse */
    EXT_PROC_F_STATUS = 1,
    EXT_PROC_F_HEADER_MUTATION = 2,
    EXT_PROC_F_BODY_MUTATION = 3,
    EXT_PROC_F_CLEAR_ROUTE_CACHE = 5,
    /* HeaderMutation, HeaderValueOption */
    EXT_PROC_F_SET_HEADERS = 1,
    EXT_PROC_F_REMOVE_HEADERS = 2,
    EXT_PROC_F_OPTION_HEADER = 1,
    /* BodyMutation */
    EXT_PROC_F_MUTATION_BODY = 1,
    EXT_PROC_F_MUTATION_CLEAR = 2,
    EXT_PROC_F_MUTATION_STREAMED = 3,
    /* ImmediateResponse, HttpStatus, GrpcStatus */
    EXT_PROC_F_IMMEDIATE_STATUS = 1,
    EXT_PROC_F_IMMEDIATE_HEADERS = 2,
    EXT_PROC_F_IMMEDIATE_BODY = 3,
    EXT_PROC_F_IMMEDIATE_GRPC_STATUS = 4,
    EXT_PROC_F_IMMEDIATE_DETAILS = 5,
    EXT_PROC_F_CODE = 1,
    /* ProcessingMode */
    EXT_PROC_F_REQUEST_HEADER_MODE = 1,
    EXT_PROC_F_RESPONSE_HEADER_MODE = 2,
    EXT_PROC_F_MODE_REQUEST_BODY = 3,
    EXT_PROC_F_MODE_RESPONSE_BODY = 4,
    EXT_PROC_F_REQUEST_TRAILER_MODE = 5,
    EXT_PROC_F_RESPONSE_TRAILER_MODE = 6,
};

/* Single fields of a message and where in a struct each goes: `offset` is that of a struct str
 * (TEXT: UTF-8), bool, enum ext_proc_body_mode or uint32_t (larger numbers become the largest). */
enum ext_proc_type {
    EXT_PROC_T_BYTES,
    EXT_PROC_T_TEXT,
    EXT_PROC_T_BOOL,
    EXT_PROC_T_MODE,
    EXT_PROC_T_NUMBER,
};
struct ext_proc_field_rule {
    uint32_t number;
    enum ext_proc_type type;
    size_t offset;
    const char *name; /* for what is said of it */
};

/* Takes one field into its slot of `out`, if it has one; the last slot's number is 0. Returns:
 * ST_BAD_FIELD. */
enum status ext_proc_field_decode(const struct pb_field *field,
                                  const struct ext_proc_field_rule *rules, void *out,
                                  struct error *err) __attribute__((warn_unused_result));
/* Reads the message `what` into those slots of `out`; other fields are passed over. Returns:
 * ST_BAD_REQUEST, ST_BAD_FIELD. */
enum status ext_proc_fields_decode(struct str message, const char *what,
                                   const struct ext_proc_field_rule *rules, void *out,
                                   struct error *err) __attribute__((warn_unused_result));
/* Takes a nested message or bytes. Returns: ST_BAD_FIELD, saying what `name` is not. */
enum status ext_proc_bytes_field_decode(const struct pb_field *field, const char *name,
                                        struct str *out, struct error *err)
    __attribute__((warn_unused_result));

/* ---- google.protobuf.Struct ------------------------------------------------------------------ */

/* Proxies keep metadata in a Struct: maps of values that nest. It is checked once, with a bound on
 * the nesting and without recursion, and read in place after that.
 *
 * struct.proto: Struct{fields 1: map<string, Value>}, ListValue{values 1: Value},
 * Value{null 1, number 2, string 3, bool 4, struct 5, list 6}. */

/* What a message is; each says which of its fields are messages of which sort. */
enum ext_proc_node {
    EXT_PROC_NODE_IGNORED, /* a field that is not looked at */
    EXT_PROC_NODE_TEXT,
    EXT_PROC_NODE_METADATA,  /* Metadata{filter_metadata 1: map<string, Struct>} */
    EXT_PROC_NODE_NAMESPACE, /* an entry of that map */
    EXT_PROC_NODE_STRUCT,
    EXT_PROC_NODE_ENTRY, /* of the map in a Struct */
    EXT_PROC_NODE_VALUE,
    EXT_PROC_NODE_LIST,
};

enum {
    EXT_PROC_F_MAP_KEY = 1,
    EXT_PROC_F_MAP_VALUE = 2,
    EXT_PROC_F_FILTER_METADATA = 1, /* Metadata's filter_metadata */
    EXT_PROC_F_ENTRIES = 1,
    EXT_PROC_F_LIST_VALUES = 1,
    EXT_PROC_F_VALUE_STRING = 3,
    EXT_PROC_F_VALUE_STRUCT = 5,
    EXT_PROC_F_VALUE_LIST = 6,
};

/* Is it well formed, all of it, and nested at most EXT_PROC_MAX_DEPTH messages deep? Returns: as
 * ext_proc_request_decode; `what` is what the error calls it. */
enum status ext_proc_struct_check(struct str message, enum ext_proc_node node, const char *what,
                                  struct error *err) __attribute__((warn_unused_result));
/* Has the map<string, Struct> that is field `number` of `message` such an entry? */
bool ext_proc_struct_has(struct str message, uint32_t number, struct str space);
/* Looks into the map<string, Struct> that is field `number` of `message`. */
struct ext_proc_value ext_proc_struct_find(struct str message, uint32_t number, struct str space,
                                           struct str key);
/* Looks into the Struct of Structs `message`, as dynamic metadata is. */
struct ext_proc_value ext_proc_struct_find_nested(struct str message, struct str space,
                                                  struct str key);
/* Appends the map that ext_proc_struct_find looks into: entries of field `number`. `nested`: that
 * of a Struct of Structs. */
void ext_proc_struct_add(struct buf *out, uint32_t number, const struct ext_proc_namespace *spaces,
                         size_t n, bool nested);

#endif
