/* Responses that carry a document, as JSON. */
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
static struct str strip_models(struct str json) {
    const struct str prefix = STR("{\"models\":");
    return str_starts_with(json, prefix)
               ? str_make(json.ptr + prefix.len, json.len - prefix.len - 1)
               : STR("[]");
}

enum status v2_grpc_document_print(struct arena *arena, enum v2_grpc_document document,
                                   struct str message, uint64_t max_bytes, struct str *out,
                                   struct error *err) {
    static const char *const TYPES[] = {
        [V2_GRPC_CONFIG] = "inference.ModelConfig",
        [V2_GRPC_STATISTICS] = "inference.ModelStatisticsResponse",
        [V2_GRPC_INDEX] = "inference.RepositoryIndexResponse",
    };
    const struct pb_json_options options = {.descriptors = v2_descriptors(),
                                            .type = TYPES[document],
                                            .with_defaults = document != V2_GRPC_INDEX,
                                            .max_bytes = max_bytes};
    struct buf json;
    buf_init(&json, arena, 0);
    enum status st = document == V2_GRPC_CONFIG ? find_config(message, &message, err) : ST_OK;
    if (st == ST_OK) {
        st = pb_json_print(&json, &options, message, err);
    }
    if (st != ST_OK) {
        return st;
    }
    struct str text = document == V2_GRPC_INDEX ? strip_models(buf_str(&json)) : buf_str(&json);
    *out = arena_dup(arena, text);
    return out->ptr ? ST_OK : error_no_memory(err, "the answer");
}
