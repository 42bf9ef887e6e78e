/* Both scans under one name. */
#include "pick/session/scan.h"

#include "codec/protobuf/pb.h"

enum { F_MODEL_NAME = 1, LENGTH_BYTES = 4 };

void pick_scan_init(struct pick_scan *scan, struct arena *arena, bool is_grpc, bool prefixed) {
    scan->is_grpc = is_grpc;
    if (is_grpc) {
        model_scan_grpc_init(&scan->of.grpc, arena, prefixed);
    } else {
        model_scan_init(&scan->of.json, arena);
    }
}

bool pick_scan_feed(struct pick_scan *scan, struct str bytes, bool is_compressed) {
    if (!scan->is_grpc) {
        return model_scan_feed(&scan->of.json, bytes) != MODEL_SCAN_MORE;
    }
    if (is_compressed && scan->of.grpc.result == MODEL_SCAN_MORE) {
        scan->of.grpc.result = MODEL_SCAN_COMPRESSED;
    }
    return model_scan_grpc_feed(&scan->of.grpc, bytes) != MODEL_SCAN_MORE;
}

void pick_scan_end(struct pick_scan *scan) {
    if (scan->is_grpc) {
        model_scan_grpc_finish(&scan->of.grpc);
    } else {
        model_scan_finish(&scan->of.json);
    }
}

enum status pick_scan_check(const struct pick_scan *scan, struct error *err) {
    return scan->is_grpc ? model_scan_grpc_check(&scan->of.grpc, err)
                         : model_scan_check(&scan->of.json, err);
}

struct str pick_scan_name(const struct pick_scan *scan) {
    struct str name = buf_str(scan->is_grpc ? &scan->of.grpc.name : &scan->of.json.name);
    return name.ptr ? name : STR("");
}

/* ---- another name ---------------------------------------------------------------------------- */

static void add_edit(struct pick_edits *edits, uint64_t at, uint64_t n_bytes, struct str with) {
    edits->items[edits->n++] = (struct pick_edit){at, n_bytes, with};
    edits->growth += (int64_t)with.len - (int64_t)n_bytes;
}

/* gRPC, "Length-Prefixed-Message": four bytes of length, the first the highest. */
static enum status edit_length(const struct model_scan_grpc *scan, struct buf *length,
                               size_t n_field, struct pick_edits *out, struct error *err) {
    uint64_t n_bytes = scan->message_bytes - scan->field_bytes + n_field;
    if (n_bytes > UINT32_MAX) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "with its new model's name the message is over 2^32 - 1 bytes");
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        buf_add_char(length, (char)(unsigned char)(n_bytes >> shift));
    }
    if (!length->failed) {
        add_edit(out, scan->message_at - LENGTH_BYTES, LENGTH_BYTES, buf_str(length));
    }
    return ST_OK;
}

static enum status edit_grpc(const struct model_scan_grpc *scan, struct arena *arena,
                             struct str model, struct pick_edits *out, struct error *err) {
    struct buf field, length;
    enum status st = ST_OK;
    buf_init(&field, arena, 0);
    buf_init(&length, arena, 0);
    pb_add_bytes(&field, F_MODEL_NAME, model);
    if (!field.failed && scan->message_bytes != UINT64_MAX) {
        st = edit_length(scan, &length, field.len, out, err);
    }
    if (st == ST_OK && (field.failed || length.failed)) {
        return error_set(err, ST_NO_MEMORY, "no memory for the model's name");
    }
    if (st == ST_OK) {
        add_edit(out, scan->field_at, scan->field_bytes, buf_str(&field));
    }
    return st;
}

enum status pick_scan_edit(const struct pick_scan *scan, struct arena *arena, struct str model,
                           struct pick_edits *out, struct error *err) {
    struct buf value;
    *out = (struct pick_edits){.n = 0};
    if (scan->is_grpc) {
        return edit_grpc(&scan->of.grpc, arena, model, out, err);
    }
    buf_init(&value, arena, model.len + 2);
    buf_add_json_string(&value, model);
    if (value.failed) {
        return error_set(err, ST_NO_MEMORY, "no memory for the model's name");
    }
    add_edit(out, scan->of.json.value_at, scan->of.json.value_bytes, buf_str(&value));
    return ST_OK;
}
