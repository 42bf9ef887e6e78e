/* ProcessingResponse, decoded strictly, so that tests see what a proxy would reject. */
#include "codec/ext_proc/fields.h"
#include "lib/ext_proc/client.h"

/* ---- headers --------------------------------------------------------------------------------- */

/* Proxies do not accept `value`. */
static const struct ext_proc_field_rule HEADER[] = {
    {EXT_PROC_F_HEADER_KEY, EXT_PROC_T_TEXT, offsetof(struct ext_proc_header, key), "key"},
    {EXT_PROC_F_HEADER_RAW_VALUE, EXT_PROC_T_BYTES, offsetof(struct ext_proc_header, value),
     "raw_value"},
    {.number = 0},
};

/* HeaderValueOption, HeadersResponse, BodyResponse, TrailersResponse: one field each. */
static const struct ext_proc_field_rule WRAPPED[] = {
    {1, EXT_PROC_T_BYTES, 0, "header or response"},
    {.number = 0},
};

/* HttpStatus, GrpcStatus. */
static const struct ext_proc_field_rule CODE[] = {
    {EXT_PROC_F_CODE, EXT_PROC_T_NUMBER, 0, "code"},
    {.number = 0},
};

static enum status read_header(struct str option, struct ext_proc_header *out, struct error *err) {
    struct str header = STR("");
    *out = (struct ext_proc_header){STR(""), STR("")};
    enum status status = ext_proc_fields_decode(option, "HeaderValueOption", WRAPPED, &header, err);
    return status == ST_OK ? ext_proc_fields_decode(header, "HeaderValue", HEADER, out, err)
                           : status;
}

static enum status check_mutation(struct str mutation, struct error *err) {
    struct pb_reader reader = pb_read(mutation);
    struct pb_field field;
    struct str bytes;
    struct ext_proc_header header;
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        if (field.number == EXT_PROC_F_SET_HEADERS) {
            status = ext_proc_bytes_field_decode(&field, "set_headers", &bytes, err);
            status = status == ST_OK ? read_header(bytes, &header, err) : status;
        } else if (field.number == EXT_PROC_F_REMOVE_HEADERS) {
            status = pb_get_string(&field, "remove_headers", &bytes, err);
        }
    }
    return status == ST_OK && reader.error_text ? pb_reader_error(&reader, "HeaderMutation", err)
                                                : status;
}

static bool next_field_of(struct pb_reader *reader, uint32_t number, struct str *out) {
    struct pb_field field;
    while (pb_next(reader, &field)) {
        if (field.number == number) {
            *out = field.bytes;
            return true;
        }
    }
    return false;
}

bool ext_proc_set_header_next(struct pb_reader *mutation, struct ext_proc_header *out) {
    struct str option;
    return next_field_of(mutation, EXT_PROC_F_SET_HEADERS, &option) &&
           read_header(option, out, NULL) == ST_OK;
}

bool ext_proc_removed_header_next(struct pb_reader *mutation, struct str *out) {
    return next_field_of(mutation, EXT_PROC_F_REMOVE_HEADERS, out);
}

/* ---- the members of the oneof ---------------------------------------------------------------- */

#define AT(member) offsetof(struct ext_proc_client_response, member)

static const struct ext_proc_field_rule STREAMED[] = {
    {EXT_PROC_F_BODY, EXT_PROC_T_BYTES, AT(body), "body"},
    {EXT_PROC_F_BODY_END, EXT_PROC_T_BOOL, AT(end_of_stream), "end_of_stream"},
    {EXT_PROC_F_BODY_END_WITHOUT_MESSAGE, EXT_PROC_T_BOOL, AT(end_without_message),
     "end_of_stream_without_message"},
    {EXT_PROC_F_BODY_COMPRESSED, EXT_PROC_T_BOOL, AT(is_compressed), "grpc_message_compressed"},
    {.number = 0},
};

static enum status read_body_mutation(struct str message, struct ext_proc_client_response *out,
                                      struct error *err) {
    static const struct ext_proc_field_rule one[] = {
        {EXT_PROC_F_MUTATION_BODY, EXT_PROC_T_BYTES, AT(body), "body"},
        {.number = 0},
    };
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct str streamed = STR("");
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        if (field.number == EXT_PROC_F_MUTATION_BODY) {
            out->body_mutation = EXT_PROC_BODY_REPLACED;
        } else if (field.number == EXT_PROC_F_MUTATION_CLEAR) {
            out->body_mutation = EXT_PROC_BODY_CLEARED;
        } else if (field.number == EXT_PROC_F_MUTATION_STREAMED) {
            out->body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE;
            status = ext_proc_bytes_field_decode(&field, "streamed_response", &streamed, err);
        }
    }
    if (status != ST_OK || reader.error_text) {
        return reader.error_text ? pb_reader_error(&reader, "BodyMutation", err) : status;
    }
    if (out->body_mutation == EXT_PROC_BODY_STREAMED_RESPONSE) {
        return ext_proc_fields_decode(streamed, "StreamedBodyResponse", STREAMED, out, err);
    }
    return out->body_mutation == EXT_PROC_BODY_REPLACED
               ? ext_proc_fields_decode(message, "BodyMutation", one, out, err)
               : ST_OK;
}

static enum status read_common(struct str message, struct ext_proc_client_response *out,
                               struct error *err) {
    static const struct ext_proc_field_rule own[] = {
        {EXT_PROC_F_STATUS, EXT_PROC_T_BOOL, AT(continue_and_replace), "status"},
        {EXT_PROC_F_HEADER_MUTATION, EXT_PROC_T_BYTES, AT(mutation), "header_mutation"},
        {EXT_PROC_F_CLEAR_ROUTE_CACHE, EXT_PROC_T_BOOL, AT(clear_route_cache), "clear_route_cache"},
        {.number = 0},
    };
    static const struct ext_proc_field_rule body_mutation[] = {
        {EXT_PROC_F_BODY_MUTATION, EXT_PROC_T_BYTES, 0, "body_mutation"},
        {.number = 0},
    };
    struct str body = STR("");
    enum status status = ext_proc_fields_decode(message, "CommonResponse", own, out, err);
    if (status == ST_OK) {
        status = ext_proc_fields_decode(message, "CommonResponse", body_mutation, &body, err);
    }
    return status == ST_OK ? read_body_mutation(body, out, err) : status;
}

static enum status read_immediate(struct str message, struct ext_proc_client_response *out,
                                  struct error *err) {
    static const struct ext_proc_field_rule own[] = {
        {EXT_PROC_F_IMMEDIATE_HEADERS, EXT_PROC_T_BYTES, AT(mutation), "headers"},
        {EXT_PROC_F_IMMEDIATE_BODY, EXT_PROC_T_BYTES, AT(body), "body"},
        {EXT_PROC_F_IMMEDIATE_DETAILS, EXT_PROC_T_TEXT, AT(details), "details"},
        {.number = 0},
    };
    struct codes {
        struct str http, grpc;
    } codes = {STR(""), STR("")};
    static const struct ext_proc_field_rule both[] = {
        {EXT_PROC_F_IMMEDIATE_STATUS, EXT_PROC_T_BYTES, offsetof(struct codes, http), "status"},
        {EXT_PROC_F_IMMEDIATE_GRPC_STATUS, EXT_PROC_T_BYTES, offsetof(struct codes, grpc),
         "grpc_status"},
        {.number = 0},
    };
    enum status status = ext_proc_fields_decode(message, "ImmediateResponse", own, out, err);
    if (status == ST_OK) {
        status = ext_proc_fields_decode(message, "ImmediateResponse", both, &codes, err);
    }
    if (status == ST_OK) {
        status = ext_proc_fields_decode(codes.http, "HttpStatus", CODE, &out->http_status, err);
    }
    return status == ST_OK
               ? ext_proc_fields_decode(codes.grpc, "GrpcStatus", CODE, &out->grpc_status, err)
               : status;
}

static enum status read_member(struct str member, struct ext_proc_client_response *out,
                               struct error *err) {
    struct str inner = STR("");
    if (out->is_immediate) {
        return read_immediate(member, out, err);
    }
    enum status status = ext_proc_fields_decode(member, "response", WRAPPED, &inner, err);
    if (out->kind == EXT_PROC_REQUEST_TRAILERS || out->kind == EXT_PROC_RESPONSE_TRAILERS) {
        out->mutation = inner;
        return status;
    }
    return status == ST_OK ? read_common(inner, out, err) : status;
}

/* ---- the message ----------------------------------------------------------------------------- */

static enum status read_modes(struct str message, struct ext_proc_processing_mode *out,
                              struct error *err) {
    struct sends {
        uint32_t request_headers, response_headers, request_trailers, response_trailers;
    } sends = {0};
    static const struct ext_proc_field_rule slots[] = {
        {EXT_PROC_F_REQUEST_HEADER_MODE, EXT_PROC_T_NUMBER, offsetof(struct sends, request_headers),
         "request_header_mode"},
        {EXT_PROC_F_RESPONSE_HEADER_MODE, EXT_PROC_T_NUMBER,
         offsetof(struct sends, response_headers), "response_header_mode"},
        {EXT_PROC_F_REQUEST_TRAILER_MODE, EXT_PROC_T_NUMBER,
         offsetof(struct sends, request_trailers), "request_trailer_mode"},
        {EXT_PROC_F_RESPONSE_TRAILER_MODE, EXT_PROC_T_NUMBER,
         offsetof(struct sends, response_trailers), "response_trailer_mode"},
        {.number = 0},
    };
    static const struct ext_proc_field_rule bodies[] = {
        {EXT_PROC_F_MODE_REQUEST_BODY, EXT_PROC_T_MODE,
         offsetof(struct ext_proc_processing_mode, request_body), "request_body_mode"},
        {EXT_PROC_F_MODE_RESPONSE_BODY, EXT_PROC_T_MODE,
         offsetof(struct ext_proc_processing_mode, response_body), "response_body_mode"},
        {.number = 0},
    };
    enum status status = ext_proc_fields_decode(message, "ProcessingMode", slots, &sends, err);
    out->request_headers = (enum ext_proc_header_send_mode)sends.request_headers;
    out->response_headers = (enum ext_proc_header_send_mode)sends.response_headers;
    out->request_trailers = (enum ext_proc_header_send_mode)sends.request_trailers;
    out->response_trailers = (enum ext_proc_header_send_mode)sends.response_trailers;
    return status == ST_OK ? ext_proc_fields_decode(message, "ProcessingMode", bodies, out, err)
                           : status;
}

static enum status read_top_level(struct str message, struct ext_proc_client_response *out,
                                  struct str *member, struct str *modes, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        if (field.number == EXT_PROC_F_DYNAMIC_METADATA) {
            status = ext_proc_bytes_field_decode(&field, "dynamic_metadata", &out->metadata, err);
        } else if (field.number == EXT_PROC_F_MODE_OVERRIDE) {
            status = ext_proc_bytes_field_decode(&field, "mode_override", modes, err);
            out->has_mode_override = true;
        } else if (field.number <= EXT_PROC_F_IMMEDIATE) {
            out->is_immediate = field.number == EXT_PROC_F_IMMEDIATE;
            out->kind = out->is_immediate ? EXT_PROC_NONE : (enum ext_proc_kind)field.number;
            status = ext_proc_bytes_field_decode(&field, "response", member, err);
        }
    }
    return status == ST_OK && reader.error_text
               ? pb_reader_error(&reader, "ProcessingResponse", err)
               : status;
}

enum status ext_proc_client_response_decode(struct str message,
                                            struct ext_proc_client_response *out,
                                            struct error *err) {
    struct str member = STR(""), modes = STR("");
    *out = (struct ext_proc_client_response){
        .mutation = STR(""), .body = STR(""), .details = STR(""), .metadata = STR("")};
    enum status status = read_top_level(message, out, &member, &modes, err);
    if (status == ST_OK) {
        status = read_member(member, out, err);
    }
    if (status == ST_OK) {
        status = check_mutation(out->mutation, err);
    }
    if (status == ST_OK) {
        status = read_modes(modes, &out->mode_override, err);
    }
    return status == ST_OK
               ? ext_proc_struct_check(out->metadata, EXT_PROC_NODE_STRUCT, "dynamic_metadata", err)
               : status;
}

struct ext_proc_value ext_proc_client_response_metadata_find(
    const struct ext_proc_client_response *response, struct str space, struct str key) {
    return ext_proc_struct_find_nested(response->metadata, space, key);
}
