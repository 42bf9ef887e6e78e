/* ProcessingRequest, encoded as Envoy does. */
#include "lib/ext_proc/client.h"

#include "codec/ext_proc/fields.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void add_true(struct buf *out, uint32_t number, bool value) {
    if (value) {
        pb_add_varint(out, number, 1);
    }
}

static void add_headers(struct buf *out, const struct ext_proc_client_request *request) {
    size_t map = pb_begin(out, EXT_PROC_F_HEADERS_MAP);
    for (size_t i = 0; i < request->n_headers; i++) {
        size_t header = pb_begin(out, EXT_PROC_F_MAP_HEADER);
        pb_add_string(out, EXT_PROC_F_HEADER_KEY, request->headers[i].key);
        pb_add_string(out, EXT_PROC_F_HEADER_RAW_VALUE, request->headers[i].value);
        pb_end(out, header);
    }
    pb_end(out, map);
    if (request->kind <= EXT_PROC_RESPONSE_HEADERS) {
        add_true(out, EXT_PROC_F_HEADERS_END, request->end_of_stream);
    }
}

static void add_member(struct buf *out, const struct ext_proc_client_request *request) {
    size_t start = pb_begin(out, (uint32_t)request->kind + EXT_PROC_F_REQUEST_KIND);
    if (request->kind == EXT_PROC_REQUEST_BODY || request->kind == EXT_PROC_RESPONSE_BODY) {
        pb_add_string(out, EXT_PROC_F_BODY, request->body);
        add_true(out, EXT_PROC_F_BODY_END, request->end_of_stream);
        add_true(out, EXT_PROC_F_BODY_END_WITHOUT_MESSAGE, request->end_without_message);
        add_true(out, EXT_PROC_F_BODY_COMPRESSED, request->is_compressed);
    } else {
        add_headers(out, request);
    }
    pb_end(out, start);
}

static void add_mode(struct buf *out, uint32_t number, enum ext_proc_body_mode mode) {
    if (mode != EXT_PROC_BODY_NONE) {
        pb_add_varint(out, number, (uint64_t)mode);
    }
}

static void add_config(struct buf *out, const struct ext_proc_config *config) {
    size_t start = pb_begin(out, EXT_PROC_F_PROTOCOL_CONFIG);
    add_mode(out, EXT_PROC_F_REQUEST_BODY_MODE, config->request_body);
    add_mode(out, EXT_PROC_F_RESPONSE_BODY_MODE, config->response_body);
    add_true(out, EXT_PROC_F_WITHOUT_WAITING, config->send_body_without_waiting);
    pb_end(out, start);
}

void ext_proc_client_request_encode(struct buf *out,
                                    const struct ext_proc_client_request *request) {
    if (request->kind != EXT_PROC_NONE) {
        add_member(out, request);
    }
    if (request->has_metadata) {
        size_t start = pb_begin(out, EXT_PROC_F_METADATA_CONTEXT);
        ext_proc_struct_add(out, EXT_PROC_F_FILTER_METADATA, request->metadata, request->n_metadata,
                            false);
        pb_end(out, start);
    }
    ext_proc_struct_add(out, EXT_PROC_F_ATTRIBUTES, request->attributes, request->n_attributes,
                        false);
    add_true(out, EXT_PROC_F_OBSERVABILITY_MODE, request->observability_mode);
    if (request->config) {
        add_config(out, request->config);
    }
}
