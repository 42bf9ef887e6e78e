/* The small messages of inference.GRPCInferenceService: requests with a name, health, metadata. */
#include "codec/kserve/grpc/fields.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "core/base/num.h"

enum { NAME = 1, VERSION = 2 };

enum status v2_grpc_named_decode(struct arena *arena, struct str message, struct str *name,
                                 struct str *version, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct v2_grpc_path_prefix whole = {NULL, 0};
    enum status st = ST_OK;
    (void)arena;
    *name = *version = STR("");
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == NAME) {
            st = v2_grpc_get_string(&field, whole, "name", name, err);
        } else if (field.number == VERSION) {
            st = v2_grpc_get_string(&field, whole, "version", version, err);
        }
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "request", err) : st;
}

enum status v2_grpc_empty_decode(struct str message, struct error *err) {
    return pb_check(message, "request", err);
}

void v2_grpc_bool_encode(struct buf *out, bool yes) {
    if (yes) {
        pb_add_varint(out, 1, 1);
    }
}

void v2_grpc_server_metadata_encode(struct buf *out, const char *name, const char *version,
                                    const char *const *extensions) {
    pb_add_string(out, 1, str_of(name));
    pb_add_string(out, 2, str_of(version));
    for (size_t i = 0; extensions[i]; i++) {
        pb_add_string(out, 3, str_of(extensions[i]));
    }
}

static void print_spec(struct buf *out, uint32_t number, const struct tensor_spec *spec) {
    size_t start = pb_begin(out, number);
    pb_add_string(out, 1, spec->name);
    pb_add_string(out, 2, str_of(datatype_name(spec->datatype)));
    pb_add_packed_i64(out, 3, spec->shape.dims, spec->shape.rank);
    pb_end(out, start);
}

void v2_grpc_model_metadata_encode(struct buf *out, const struct model_spec *spec,
                                   const uint64_t *versions, size_t n_versions) {
    pb_add_string(out, 1, spec->name);
    for (size_t i = 0; i < n_versions; i++) {
        char text[20];
        pb_add_string(out, 2, str_make(text, num_print_u64(text, versions[i])));
    }
    pb_add_string(out, 3, spec->platform);
    for (size_t i = 0; i < spec->n_inputs; i++) {
        print_spec(out, 4, &spec->inputs[i]);
    }
    for (size_t i = 0; i < spec->n_outputs; i++) {
        print_spec(out, 5, &spec->outputs[i]);
    }
}
