/* Field numbers of ext-proc, and decoding that its messages share. Internal to codec/ext_proc
 * and its test client.
 *
 * proto/ext_proc.proto */
#ifndef SLUICE_CODEC_EXT_PROC_FIELDS_H
#define SLUICE_CODEC_EXT_PROC_FIELDS_H

#include "codec/ext_proc/request.h"
#include "core/base/buf.h"

/* ProcessingRequest. The numbers of its oneof's members are enum ext_proc_kind + 1. */
enum {
    EXT_PROC_F_REQUEST_KIND = 1, /* added to the kind */
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

/* ProcessingResponse. The numbers of its oneof's members are enum ext_proc_kind, and: */
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

/* Where single fields of a message are stored in a struct: at `offset` is a struct str (TEXT:
 * UTF-8), bool, enum ext_proc_body_mode or uint32_t (larger numbers become UINT32_MAX). */
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
    const char *name; /* for error texts */
};

/* Stores one field in `out` if it has a rule; the last rule's number is 0. Returns:
 * ST_BAD_FIELD. */
enum status ext_proc_field_decode(const struct pb_field *field,
                                  const struct ext_proc_field_rule *rules, void *out,
                                  struct error *err) SLUICE_MUST_USE;
/* Decodes the message `what` by the rules; other fields are ignored. Returns: ST_BAD_REQUEST,
 * ST_BAD_FIELD. */
enum status ext_proc_fields_decode(struct str message, const char *what,
                                   const struct ext_proc_field_rule *rules, void *out,
                                   struct error *err) SLUICE_MUST_USE;
/* Reads a nested message or bytes. Returns: ST_BAD_FIELD, with `name` in the text. */
enum status ext_proc_bytes_field_decode(const struct pb_field *field, const char *name,
                                        struct str *out, struct error *err) SLUICE_MUST_USE;

/* ---- google.protobuf.Struct ------------------------------------------------------------------ */

/* Proxies keep metadata in a Struct: maps of nested values. It is checked once, with a bound on
 * the nesting and without recursion, and read in place after that.
 *
 * struct.proto: Struct{fields 1: map<string, Value>}, ListValue{values 1: Value},
 * Value{null 1, number 2, string 3, bool 4, struct 5, list 6}. */

/* Kinds of messages and fields; the kind of a message decides the kinds of its fields. */
enum ext_proc_node {
    EXT_PROC_NODE_IGNORED, /* a field that is not checked */
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
    EXT_PROC_F_VALUE_NUMBER = 2,
    EXT_PROC_F_VALUE_STRING = 3,
    EXT_PROC_F_VALUE_STRUCT = 5,
    EXT_PROC_F_VALUE_LIST = 6,
};

/* Checks that the whole message is well formed and nested at most EXT_PROC_MAX_DEPTH messages
 * deep. `what` names it in error texts. Returns: as ext_proc_request_decode. */
enum status ext_proc_struct_check(struct str message, enum ext_proc_node node, const char *what,
                                  struct error *err) SLUICE_MUST_USE;
/* Does the map<string, Struct> in field `number` of `message` have an entry `space`? */
bool ext_proc_struct_has(struct str message, uint32_t number, struct str space);
/* Returns: the value [space][key] of the map<string, Struct> in field `number` of `message`. */
struct ext_proc_value ext_proc_struct_find(struct str message, uint32_t number, struct str space,
                                           struct str key);
/* Returns: the value [space][key] of `message`, a Struct of Structs, as dynamic metadata is. The
 * picker writes such ones (ext_proc_struct_add); only the proxy's side, tests/lib/ext_proc, reads
 * them. */
struct ext_proc_value ext_proc_struct_find_nested(struct str message, struct str space,
                                                  struct str key);
/* Appends the members of a Struct. */
void ext_proc_struct_add_entries(struct buf *out, const struct ext_proc_namespace *space);
/* Appends the map that ext_proc_struct_find reads: entries of field `number`. `nested`: as a
 * Struct of Structs. */
void ext_proc_struct_add(struct buf *out, uint32_t number, const struct ext_proc_namespace *spaces,
                         size_t n, bool nested);

#endif
