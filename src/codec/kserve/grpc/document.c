/* Responses that carry a document, as JSON. */
#include <string.h>

#include "codec/kserve/descriptors.h"
#include "codec/kserve/grpc/fields.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/protobuf/pb_json.h"

static const struct v2_grpc_path_prefix WHOLE = {NULL, 0};

enum { RESPONSE_CONFIG = 1 }; /* of ModelConfigResponse */

/* Returns: the configuration in a ModelConfigResponse. */
static enum status find_config(struct str message, struct str *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *out = str_make(NULL, 0);
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == RESPONSE_CONFIG) {
            st = v2_grpc_get_message(&field, WHOLE, "config", out, err);
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "ModelConfigResponse", err);
    }
    return st == ST_OK && !out->ptr ? error_set(err, ST_BAD_FIELD, "config: expected one, got none")
                                    : st;
}

/* Over HTTP an index is the array alone. */
static void strip_models(struct buf *out, size_t start) {
    const struct str prefix = STR("{\"models\":");
    struct str json = str_make(out->data + start, out->len - start);
    out->len = start;
    if (str_starts_with(json, prefix)) {
        size_t n = json.len - prefix.len - 1;
        memmove(out->data + start, json.ptr + prefix.len, n);
        out->len += n;
    } else {
        buf_add_str(out, STR("[]"));
    }
}

enum status v2_grpc_document_add(struct buf *out, enum v2_grpc_document document,
                                 struct str message, uint64_t max_bytes, struct error *err) {
    static const char *const TYPES[] = {
        [V2_GRPC_CONFIG] = "inference.ModelConfig",
        [V2_GRPC_STATISTICS] = "inference.ModelStatisticsResponse",
        [V2_GRPC_INDEX] = "inference.RepositoryIndexResponse",
        [V2_GRPC_SERVER_METADATA] = "inference.ServerMetadataResponse",
        [V2_GRPC_MODEL_METADATA] = "inference.ModelMetadataResponse",
    };
    const struct pb_json_options options = {.descriptors = v2_descriptors(),
                                            .type = TYPES[document],
                                            .with_defaults = document != V2_GRPC_INDEX,
                                            .max_bytes = max_bytes};
    size_t start = out->len;
    enum status st = document == V2_GRPC_CONFIG ? find_config(message, &message, err) : ST_OK;
    if (st == ST_OK) {
        st = pb_json_print(out, &options, message, err);
    }
    if (st == ST_OK && document == V2_GRPC_INDEX) {
        strip_models(out, start);
    }
    return st;
}

enum status v2_grpc_document_print(struct arena *arena, enum v2_grpc_document document,
                                   struct str message, uint64_t max_bytes, struct str *out,
                                   struct error *err) {
    struct buf json;
    buf_init(&json, arena, 0);
    enum status st = v2_grpc_document_add(&json, document, message, max_bytes, err);
    if (st != ST_OK) {
        return st;
    }
    *out = arena_dup(arena, buf_str(&json));
    return out->ptr ? ST_OK : error_no_memory(err, "the answer");
}
