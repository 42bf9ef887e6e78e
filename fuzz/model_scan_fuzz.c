/* The scans for a body's model: the first byte selects the splits, which make no difference;
 * decoders of the whole body find the same. */
#include "codec/json/tree.h"
#include "codec/kserve/chunks_fixture.h"
#include "codec/kserve/v2_fixture.h"
#include "codec/prompt/model_scan_grpc.h"
#include "codec/protobuf/pb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- JSON ------------------------------------------------------------------------------------ */

static void scan_json(struct arena *arena, struct str text, uint32_t choice, bool cut,
                      struct model_scan *out) {
    model_scan_init(out, arena);
    while (text.len > 0) {
        struct str part = cut ? next_chunk(&text, &choice) : text;
        model_scan_feed(out, part);
        if (!cut) {
            break;
        }
        free((char *)part.ptr);
    }
    model_scan_finish(out);
    struct error err = {0};
    enum status status = model_scan_check(out, &err);
    check(out->result != MODEL_SCAN_MORE && status == err.status);
    check((status == ST_OK) == (out->result == MODEL_SCAN_FOUND));
    check((status == ST_OK) == (err.text[0] == '\0'));
}

static void check_tree(yyjson_val *root, const struct model_scan *scan) {
    yyjson_val *model = yyjson_is_obj(root) ? yyjson_obj_get(root, "model") : NULL;
    if (!yyjson_is_obj(root)) {
        check(scan->result == MODEL_SCAN_NOT_OBJECT);
    } else if (!model) {
        check(scan->result == MODEL_SCAN_ABSENT);
    } else if (scan->result == MODEL_SCAN_TOO_LONG) {
        check(yyjson_get_len(model) > MODEL_SCAN_MAX_BYTES);
    } else if (scan->result == MODEL_SCAN_FOUND) {
        struct str name = str_make(yyjson_get_str(model), yyjson_get_len(model));
        check(str_eq(buf_str(&scan->name), name));
    } else {
        check(scan->result == MODEL_SCAN_OTHER_TYPE);
        check(!yyjson_is_str(model));
    }
}

static void check_json(struct arena *arena, struct str text, uint32_t choice) {
    struct model_scan whole, parts;
    struct json_tree tree;
    scan_json(arena, text, choice, false, &whole);
    scan_json(arena, text, choice, true, &parts);
    check(whole.result == parts.result && whole.at == parts.at);
    check(str_eq(buf_str(&whole.name), buf_str(&parts.name)));
    if (whole.result == MODEL_SCAN_FOUND) {
        check(whole.value_at == parts.value_at && whole.value_bytes == parts.value_bytes);
        check(whole.value_at + whole.value_bytes == whole.at && text.ptr[whole.value_at] == '"');
    }
    if (json_tree_parse(&tree, "x", arena, text, &fixture_limits, NULL) == ST_OK) {
        check_tree(tree.root, &whole);
        json_tree_free_values(&tree);
    }
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

static void scan_grpc(struct arena *arena, struct str body, uint32_t choice, bool prefixed,
                      struct model_scan_grpc *out) {
    model_scan_grpc_init(out, arena, prefixed);
    while (body.len > 0 && choice != 0) {
        struct str part = next_chunk(&body, &choice);
        model_scan_grpc_feed(out, part);
        free((char *)part.ptr);
    }
    model_scan_grpc_feed(out, body);
    model_scan_grpc_finish(out);
    struct error err = {0};
    enum status status = model_scan_grpc_check(out, &err);
    check(out->result != MODEL_SCAN_MORE && out->result != MODEL_SCAN_NOT_OBJECT);
    check(status == err.status && (status == ST_OK) == (out->result == MODEL_SCAN_FOUND));
}

/* Compares the result, also an absent name, with a decoder of the whole message. */
static void check_fields(struct str message, const struct model_scan_grpc *scan) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    bool found = false;
    while (!found && pb_next(&reader, &field)) {
        found = field.number == 1;
    }
    if (scan->result == MODEL_SCAN_FOUND) {
        check(found && field.type == PB_BYTES && str_eq(field.bytes, buf_str(&scan->name)));
        check(field.bytes.ptr + field.bytes.len ==
              message.ptr + (scan->field_at - scan->message_at) + scan->field_bytes);
    } else if (scan->result == MODEL_SCAN_ABSENT) {
        check(!found && !reader.error_text);
    }
}

static void check_grpc(struct arena *arena, struct str body, uint32_t choice, bool prefixed) {
    struct model_scan_grpc whole, parts;
    scan_grpc(arena, body, 0, prefixed, &whole);
    scan_grpc(arena, body, choice, prefixed, &parts);
    check(whole.result == parts.result && whole.at == parts.at);
    check(str_eq(buf_str(&whole.name), buf_str(&parts.name)));
    check(whole.field_at == parts.field_at && whole.field_bytes == parts.field_bytes);
    if (!prefixed) {
        check_fields(body, &whole);
    } else if (whole.message_bytes != UINT64_MAX && body.len - 5 >= whole.message_bytes) {
        check_fields(str_make(body.ptr + 5, (size_t)whole.message_bytes), &whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    struct arena *arena = arena_new(NULL, 0);
    struct str body = str_make((const char *)data + 1, size - 1);
    uint32_t choice = (uint32_t)data[0] + 1;
    check_json(arena, body, choice);
    check_grpc(arena, body, choice, true);
    check_grpc(arena, body, choice, false);
    arena_free(arena);
    return 0;
}
