/* Registration requests decoded, region status encoded. */
#include "codec/kserve/shared_memory.h"

#include "codec/json/tree.h"
#include "codec/protobuf/pb.h"
#include "core/base/json_writer.h"

enum { KEY, BYTE_SIZE, OFFSET, N_MEMBERS };

static const struct str NAMES[N_MEMBERS] = {
    [KEY] = {"key", 3}, [BYTE_SIZE] = {"byte_size", 9}, [OFFSET] = {"offset", 6}};

/* ---- JSON ------------------------------------------------------------------------------------ */

static enum status read_members(const struct json_tree *tree, struct v2_shared_memory_region *out,
                                struct error *err) {
    yyjson_val *found[N_MEMBERS];
    json_find(tree->root, NAMES, N_MEMBERS, found);
    if (!found[KEY]) {
        return json_error_missing(tree, tree->root, "key", "a string", err);
    }
    if (!found[BYTE_SIZE]) {
        return json_error_missing(tree, tree->root, "byte_size", "a whole number", err);
    }
    enum status st = json_read_string(tree, found[KEY], &out->key, err);
    if (st == ST_OK) {
        st = json_read_u64(tree, found[BYTE_SIZE], &out->n_bytes, err);
    }
    return st == ST_OK && found[OFFSET] ? json_read_u64(tree, found[OFFSET], &out->offset, err)
                                        : st;
}

enum status v2_shared_memory_register_decode(struct arena *arena, struct str body,
                                             const struct json_limits *limits,
                                             struct v2_shared_memory_region *out,
                                             struct error *err) {
    struct json_tree tree;
    *out = (struct v2_shared_memory_region){.name = STR("")};
    if (body.len == 0) {
        return error_set(err, ST_BAD_JSON, "expected a JSON object, got an empty body");
    }
    enum status st = json_tree_parse_request(&tree, arena, body, limits, err);
    return st == ST_OK ? read_members(&tree, out, err) : st;
}

void v2_shared_memory_write(struct json_writer *json,
                            const struct v2_shared_memory_region *region) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", region->name);
    json_write_string(json, "key", region->key);
    json_write_u64(json, "offset", region->offset);
    json_write_u64(json, "byte_size", region->n_bytes);
    json_write_close(json, '}');
}

/* ---- protobuf -------------------------------------------------------------------------------- */

/* SystemSharedMemoryRegisterRequest and RegionStatus have the same fields. */
enum { PB_NAME = 1, PB_KEY = 2, PB_OFFSET = 3, PB_BYTE_SIZE = 4 };

enum status v2_grpc_shared_memory_register_decode(struct str message,
                                                  struct v2_shared_memory_region *out,
                                                  struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *out = (struct v2_shared_memory_region){.name = STR(""), .key = STR("")};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == PB_NAME) {
            st = pb_get_string(&field, "name", &out->name, err);
        } else if (field.number == PB_KEY) {
            st = pb_get_string(&field, "key", &out->key, err);
        } else if (field.number == PB_OFFSET && field.type == PB_VARINT) {
            out->offset = field.value;
        } else if (field.number == PB_BYTE_SIZE && field.type == PB_VARINT) {
            out->n_bytes = field.value;
        }
    }
    return st == ST_OK && reader.error_text
               ? pb_reader_error(&reader, "SystemSharedMemoryRegisterRequest", err)
               : st;
}

void v2_grpc_shared_memory_register_encode(struct buf *out,
                                           const struct v2_shared_memory_region *region) {
    pb_add_bytes(out, PB_NAME, region->name);
    pb_add_bytes(out, PB_KEY, region->key);
    pb_add_varint(out, PB_OFFSET, region->offset);
    pb_add_varint(out, PB_BYTE_SIZE, region->n_bytes);
}

void v2_grpc_shared_memory_encode(struct buf *out, const struct v2_shared_memory_region *region) {
    enum { REGIONS = 1, MAP_KEY = 1, MAP_VALUE = 2 };
    size_t entry = pb_begin(out, REGIONS);
    pb_add_bytes(out, MAP_KEY, region->name);
    size_t value = pb_begin(out, MAP_VALUE);
    v2_grpc_shared_memory_register_encode(out, region);
    pb_end(out, value);
    pb_end(out, entry);
}
