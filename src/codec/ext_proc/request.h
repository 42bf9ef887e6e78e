/* A ProcessingRequest of envoy.service.ext_proc.v3.ExternalProcessor/Process: a part of an HTTP
 * request or of its response, sent by a proxy. Sans I/O and without allocation: all results are
 * views of the message. Decoding checks everything that the accessors read, so they cannot fail.
 *
 * Field numbers are those of proto/ext_proc.proto (ours, wire-compatible). Fields come in any
 * order and unknown ones are skipped. Of several members of a oneof, and of a repeated single
 * field, the last counts; they are not merged, as no proxy splits them.
 *
 * Clause: ext-proc, ProcessingRequest; the endpoint picker protocol, "Endpoint Subset". */
#ifndef SLUICE_CODEC_EXT_PROC_REQUEST_H
#define SLUICE_CODEC_EXT_PROC_REQUEST_H

#include "codec/protobuf/pb.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum ext_proc_kind {
    EXT_PROC_NONE, /* no known member: a newer proxy, or an empty message */
    EXT_PROC_REQUEST_HEADERS,
    EXT_PROC_RESPONSE_HEADERS,
    EXT_PROC_REQUEST_BODY,
    EXT_PROC_RESPONSE_BODY,
    EXT_PROC_REQUEST_TRAILERS,
    EXT_PROC_RESPONSE_TRAILERS,
};

/* How a body is sent; numbers as in the protocol. */
enum ext_proc_body_mode {
    EXT_PROC_BODY_NONE = 0,
    EXT_PROC_BODY_STREAMED = 1,
    EXT_PROC_BODY_BUFFERED = 2,
    EXT_PROC_BODY_BUFFERED_PARTIAL = 3,
    EXT_PROC_BODY_FULL_DUPLEX = 4,
    EXT_PROC_BODY_GRPC = 5,
    EXT_PROC_BODY_OTHER = 6, /* from a newer proxy; never sent */
};

struct ext_proc_config {
    enum ext_proc_body_mode request_body, response_body;
    bool send_body_without_waiting; /* the body is sent before the response to the headers */
};

/* Headers or trailers, for ext_proc_header_iter and ext_proc_header_find. */
struct ext_proc_headers {
    struct str bytes; /* a HeaderMap */
    bool is_compact;  /* each is written as Envoy does: ext_proc_header_next_compact reads it */
};

struct ext_proc_namespace;
struct ext_proc_request {
    enum ext_proc_kind kind;
    struct ext_proc_headers fields; /* of headers and trailers */
    struct str body;
    bool end_of_stream;       /* headers: no body follows; body: this is the last part */
    bool end_without_message; /* body in mode GRPC: the stream ends without another message */
    bool is_compressed;       /* body in mode GRPC: the message is compressed */
    bool observability_mode;  /* the proxy expects no response, and none may be sent */
    /* The first message of a stream has a protocol_config. An empty one means NONE for both
     * bodies: no body will follow. Absent: an older proxy, or not the first message. */
    bool has_config;
    struct ext_proc_config config;
    struct str metadata; /* metadata_context, for ext_proc_metadata_find; mostly empty */
    struct str message;  /* the whole message, for ext_proc_attribute_find */
    /* In its place, of a part that was not decoded (parts.h): texts and numbers of one space; NULL:
     * none. */
    const struct ext_proc_namespace *attributes;
};

/* Decodes. Strings must be UTF-8. Returns: ST_BAD_REQUEST (not protobuf), ST_BAD_FIELD (wrong
 * type, not UTF-8), ST_TOO_DEEP for a Struct nested deeper than EXT_PROC_MAX_DEPTH messages.
 * Owns: views of `message`. */
enum { EXT_PROC_MAX_DEPTH = 100 };
enum status ext_proc_request_decode(struct str message, struct ext_proc_request *out,
                                    struct error *err) SLUICE_MUST_USE;

/* ---- headers and trailers -------------------------------------------------------------------- */

struct ext_proc_header {
    struct str key;   /* lower case, as proxies send it; pseudo headers (":path") come first */
    struct str value; /* raw_value, or value if that is empty: any bytes */
};

/* Iterates over headers in order; repeated ones are returned each time:
 *
 *     struct ext_proc_header_iter walk = ext_proc_header_iter(&request.fields);
 *     while (ext_proc_header_next(&walk, &header)) … */
struct ext_proc_header_iter {
    struct pb_reader reader;
    bool is_compact;
};
static inline struct ext_proc_header_iter ext_proc_header_iter(
    const struct ext_proc_headers *fields) {
    return (struct ext_proc_header_iter){pb_read(fields->bytes), fields->is_compact};
}
/* Reads the next header in any encoding. Returns: as ext_proc_header_next. */
bool ext_proc_header_next_any(struct pb_reader *headers, struct ext_proc_header *out);
/* Reads the next header if it is encoded as by Envoy: in fewer than 128 bytes, with a key and a
 * raw_value only. Returns: false for other encodings; `headers` does not advance then. */
static inline bool ext_proc_header_next_compact(struct pb_reader *headers,
                                                struct ext_proc_header *out) {
    enum { HEADER = 1 << 3 | PB_BYTES, KEY = 1 << 3 | PB_BYTES, RAW_VALUE = 3 << 3 | PB_BYTES };
    const unsigned char *at = (const unsigned char *)headers->at;
    size_t left = (size_t)(headers->end - headers->at);
    if (left < 6 || at[0] != HEADER || at[1] >= 0x80 || at[1] > left - 2 || at[2] != KEY) {
        return false;
    }
    size_t n = at[1], n_key = at[3];
    if (n_key + 4 > n || at[4 + n_key] != RAW_VALUE || n_key + 4 + at[5 + n_key] != n) {
        return false;
    }
    out->key = str_make(headers->at + 4, n_key);
    out->value = str_make(headers->at + 6 + n_key, n - n_key - 4);
    headers->at += n + 2;
    return true;
}
/* Returns: false after the last header. */
static inline bool ext_proc_header_next(struct ext_proc_header_iter *walk,
                                        struct ext_proc_header *out) {
    const char *at = walk->reader.at;
    if (!walk->is_compact) {
        return ext_proc_header_next_any(&walk->reader, out);
    }
    if (at == walk->reader.end) {
        return false;
    }
    size_t n = (unsigned char)at[1], n_key = (unsigned char)at[3];
    out->key = str_make(at + 4, n_key);
    out->value = str_make(at + 6 + n_key, n - n_key - 4);
    walk->reader.at = at + n + 2;
    return true;
}
/* Returns: the value of the first header `key`; ptr NULL if absent. */
struct str ext_proc_header_find(const struct ext_proc_headers *fields, struct str key);

/* ---- metadata and attributes ----------------------------------------------------------------- */

enum ext_proc_value_kind {
    EXT_PROC_ABSENT,
    EXT_PROC_STRING,
    EXT_PROC_LIST,
    EXT_PROC_NUMBER,
    EXT_PROC_OTHER, /* a bool, null, a Struct, or an empty Value */
};

struct ext_proc_value {
    enum ext_proc_value_kind kind;
    struct str text; /* for EXT_PROC_STRING */
    struct str list; /* for EXT_PROC_LIST; read by ext_proc_list_next */
    double number;   /* for EXT_PROC_NUMBER; may be NaN or infinite */
};

/* Returns: filter_metadata[space][key]. Clause: "Endpoint Subset": "envoy.lb.subset_hint",
 * "x-gateway-destination-endpoint-subset". */
struct ext_proc_value ext_proc_metadata_find(const struct ext_proc_request *request,
                                             struct str space, struct str key);
/* Does filter_metadata[space] exist? */
bool ext_proc_metadata_has(const struct ext_proc_request *request, struct str space);
/* Returns: attributes[space][key]; proxies use the space "envoy.filters.http.ext_proc". */
struct ext_proc_value ext_proc_attribute_find(const struct ext_proc_request *request,
                                              struct str space, struct str key);
/* Reads the next value of a list, which starts as pb_read(value.list). Returns: false after the
 * last. */
bool ext_proc_list_next(struct pb_reader *list, struct ext_proc_value *out);

struct ext_proc_number {
    struct str key; /* ptr NULL: it is the entry's value itself, the only one, and no Struct is */
    double number;
};
/* Metadata to encode: a namespace of entries, each a string, a list of strings, a number or a
 * Struct of numbers. */
struct ext_proc_entry {
    struct str key;
    struct str text;
    const struct str *list; /* NULL: the value is `text`, or `numbers` */
    size_t n_list;
    const struct ext_proc_number *numbers; /* `n_list` of them; NULL: the value is none */
};
struct ext_proc_namespace {
    struct str name; /* "envoy.lb"; unique */
    const struct ext_proc_entry *entries;
    size_t n_entries;
};

#endif
