/* ProcessingRequest: one pass over the top level, then one over the last member of the oneof.
 * Everything that the accessors read later is checked here, so that they cannot fail. */
#include "codec/ext_proc/fields.h"
#include "core/base/utf8.h"

/* ---- headers --------------------------------------------------------------------------------- */

struct header {
    struct str key, value, raw;
};

static const struct ext_proc_field_rule HEADER[] = {
    {EXT_PROC_F_HEADER_KEY, EXT_PROC_T_TEXT, offsetof(struct header, key), "a header's key"},
    {EXT_PROC_F_HEADER_VALUE, EXT_PROC_T_TEXT, offsetof(struct header, value), "a header's value"},
    {EXT_PROC_F_HEADER_RAW_VALUE, EXT_PROC_T_BYTES, offsetof(struct header, raw),
     "a header's raw_value"},
    {.number = 0},
};

static enum status check_field(const struct pb_field *field, struct error *err) {
    struct str bytes;
    struct header header;
    if (field->number != EXT_PROC_F_MAP_HEADER) {
        return ST_OK;
    }
    enum status status = ext_proc_bytes_field_decode(field, "headers", &bytes, err);
    return status == ST_OK ? ext_proc_fields_decode(bytes, "HeaderValue", HEADER, &header, err)
                           : status;
}

static enum status check_map(struct ext_proc_headers *fields, struct error *err) {
    struct pb_reader reader = pb_read(fields->bytes);
    fields->is_compact = true;
    while (reader.at < reader.end) {
        const char *at = reader.at;
        struct ext_proc_header header;
        struct pb_field field;
        if (ext_proc_header_next_compact(&reader, &header)) {
            if (utf8_is_valid(header.key.ptr, header.key.len)) {
                continue;
            }
            reader.at = at;
        }
        fields->is_compact = false;
        enum status status = pb_next(&reader, &field) ? check_field(&field, err) : ST_OK;
        if (status != ST_OK) {
            return status;
        }
        if (reader.error_text) {
            return pb_reader_error(&reader, "HeaderMap", err);
        }
    }
    return ST_OK;
}

bool ext_proc_header_next_any(struct pb_reader *headers, struct ext_proc_header *out) {
    struct pb_field field;
    do {
        if (!pb_next(headers, &field)) {
            return false;
        }
    } while (field.number != EXT_PROC_F_MAP_HEADER);
    struct pb_reader reader = pb_read(field.bytes);
    struct str value = STR(""), raw = STR("");
    out->key = STR("");
    while (pb_next(&reader, &field)) {
        if (field.number == EXT_PROC_F_HEADER_KEY) {
            out->key = field.bytes;
        } else if (field.number == EXT_PROC_F_HEADER_VALUE) {
            value = field.bytes;
        } else if (field.number == EXT_PROC_F_HEADER_RAW_VALUE) {
            raw = field.bytes;
        }
    }
    out->value = raw.len > 0 ? raw : value;
    return true;
}

struct str ext_proc_header_find(const struct ext_proc_headers *fields, struct str key) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct ext_proc_header header;
    while (ext_proc_header_next(&walk, &header)) {
        if (str_eq_nocase(header.key, key)) {
            return header.value;
        }
    }
    return (struct str){NULL, 0};
}

/* ---- the members of the oneof ---------------------------------------------------------------- */

#define AT(member) offsetof(struct ext_proc_request, member)

static const struct ext_proc_field_rule HEADERS[] = {
    {EXT_PROC_F_HEADERS_MAP, EXT_PROC_T_BYTES, AT(fields.bytes), "headers"},
    {EXT_PROC_F_HEADERS_END, EXT_PROC_T_BOOL, AT(end_of_stream), "end_of_stream"},
    {.number = 0},
};

static const struct ext_proc_field_rule TRAILERS[] = {
    {EXT_PROC_F_HEADERS_MAP, EXT_PROC_T_BYTES, AT(fields.bytes), "trailers"},
    {.number = 0},
};

static const struct ext_proc_field_rule BODY[] = {
    {EXT_PROC_F_BODY, EXT_PROC_T_BYTES, AT(body), "body"},
    {EXT_PROC_F_BODY_END, EXT_PROC_T_BOOL, AT(end_of_stream), "end_of_stream"},
    {EXT_PROC_F_BODY_END_WITHOUT_MESSAGE, EXT_PROC_T_BOOL, AT(end_without_message),
     "end_of_stream_without_message"},
    {EXT_PROC_F_BODY_COMPRESSED, EXT_PROC_T_BOOL, AT(is_compressed), "grpc_message_compressed"},
    {.number = 0},
};

#undef AT

static enum status read_member(struct str message, struct ext_proc_request *out,
                               struct error *err) {
    enum status status = ST_OK;
    switch (out->kind) {
    case EXT_PROC_REQUEST_HEADERS:
    case EXT_PROC_RESPONSE_HEADERS:
        status = ext_proc_fields_decode(message, "HttpHeaders", HEADERS, out, err);
        break;
    case EXT_PROC_REQUEST_TRAILERS:
    case EXT_PROC_RESPONSE_TRAILERS:
        status = ext_proc_fields_decode(message, "HttpTrailers", TRAILERS, out, err);
        break;
    case EXT_PROC_REQUEST_BODY:
    case EXT_PROC_RESPONSE_BODY:
        return ext_proc_fields_decode(message, "HttpBody", BODY, out, err);
    case EXT_PROC_NONE:
        break;
    }
    return status == ST_OK ? check_map(&out->fields, err) : status;
}

/* ---- the message ----------------------------------------------------------------------------- */

static const struct ext_proc_field_rule CONFIG[] = {
    {EXT_PROC_F_REQUEST_BODY_MODE, EXT_PROC_T_MODE, offsetof(struct ext_proc_config, request_body),
     "request_body_mode"},
    {EXT_PROC_F_RESPONSE_BODY_MODE, EXT_PROC_T_MODE,
     offsetof(struct ext_proc_config, response_body), "response_body_mode"},
    {EXT_PROC_F_WITHOUT_WAITING, EXT_PROC_T_BOOL,
     offsetof(struct ext_proc_config, send_body_without_waiting),
     "send_body_without_waiting_for_header_response"},
    {.number = 0},
};

/* Single fields of the top level. */
struct top {
    struct str metadata, config;
    bool observability_mode;
};

static const struct ext_proc_field_rule TOP_LEVEL[] = {
    {EXT_PROC_F_METADATA_CONTEXT, EXT_PROC_T_BYTES, offsetof(struct top, metadata),
     "metadata_context"},
    {EXT_PROC_F_OBSERVABILITY_MODE, EXT_PROC_T_BOOL, offsetof(struct top, observability_mode),
     "observability_mode"},
    {EXT_PROC_F_PROTOCOL_CONFIG, EXT_PROC_T_BYTES, offsetof(struct top, config), "protocol_config"},
    {.number = 0},
};

/* Also reads the members of the oneof, of which the last counts, and checks the attributes,
 * which are repeated. */
static enum status read_top_level(struct str message, struct top *top, struct str *member,
                                  struct ext_proc_request *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct str bytes;
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        if (field.number == EXT_PROC_F_ATTRIBUTES) {
            status = ext_proc_bytes_field_decode(&field, "attributes", &bytes, err);
            status = status == ST_OK
                         ? ext_proc_struct_check(bytes, EXT_PROC_NODE_NAMESPACE, "attributes", err)
                         : status;
        } else if (field.number > EXT_PROC_F_REQUEST_KIND &&
                   field.number <= EXT_PROC_F_REQUEST_KIND + EXT_PROC_RESPONSE_TRAILERS) {
            out->kind = (enum ext_proc_kind)(field.number - EXT_PROC_F_REQUEST_KIND);
            status = ext_proc_bytes_field_decode(&field, "request", member, err);
        } else {
            status = ext_proc_field_decode(&field, TOP_LEVEL, top, err);
        }
    }
    return reader.error_text ? pb_reader_error(&reader, "ProcessingRequest", err) : status;
}

enum status ext_proc_request_decode(struct str message, struct ext_proc_request *out,
                                    struct error *err) {
    struct top top = {.metadata = STR(""), .config = {NULL, 0}};
    struct str member = STR("");
    *out = (struct ext_proc_request){.fields.bytes = STR(""), .body = STR(""), .message = message};
    enum status status = read_top_level(message, &top, &member, out, err);
    out->metadata = top.metadata;
    out->observability_mode = top.observability_mode;
    out->has_config = top.config.ptr != NULL;
    if (status == ST_OK && out->has_config) {
        status =
            ext_proc_fields_decode(top.config, "ProtocolConfiguration", CONFIG, &out->config, err);
    }
    if (status == ST_OK) {
        status =
            ext_proc_struct_check(out->metadata, EXT_PROC_NODE_METADATA, "metadata_context", err);
    }
    return status == ST_OK ? read_member(member, out, err) : status;
}

struct ext_proc_value ext_proc_metadata_find(const struct ext_proc_request *request,
                                             struct str space, struct str key) {
    return ext_proc_struct_find(request->metadata, EXT_PROC_F_FILTER_METADATA, space, key);
}

bool ext_proc_metadata_has(const struct ext_proc_request *request, struct str space) {
    return ext_proc_struct_has(request->metadata, EXT_PROC_F_FILTER_METADATA, space);
}

/* That of a list that was not encoded. */
static struct ext_proc_value find_entry(const struct ext_proc_namespace *space, struct str key) {
    for (size_t i = 0; i < space->n_entries; i++) {
        const struct ext_proc_entry *entry = &space->entries[i];
        if (str_eq(entry->key, key)) {
            return entry->numbers
                       ? (struct ext_proc_value){.kind = EXT_PROC_NUMBER,
                                                 .number = entry->numbers[0].number}
                       : (struct ext_proc_value){.kind = EXT_PROC_STRING, .text = entry->text};
        }
    }
    return (struct ext_proc_value){.kind = EXT_PROC_ABSENT};
}

struct ext_proc_value ext_proc_attribute_find(const struct ext_proc_request *request,
                                              struct str space, struct str key) {
    if (request->attributes && str_eq(request->attributes->name, space)) {
        return find_entry(request->attributes, key);
    }
    return ext_proc_struct_find(request->message, EXT_PROC_F_ATTRIBUTES, space, key);
}
